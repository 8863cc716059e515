"""Mixed precision with a gradient scaler, gradient accumulation and clipping."""

import argparse

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(12, width)
        self.second = nn.Linear(width, width)
        self.last = nn.Linear(width, 1)

    def forward(self, x):
        x = torch.relu(self.first(x))
        x = x + torch.relu(self.second(x)) * 0.5
        return self.last(x).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--no-amp", action="store_true")
    args = parser.parse_args()
    amp = not args.no_amp
    torch.manual_seed(3)
    net = Net(16).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, betas=(0.9, 0.98), weight_decay=0.05)
    scaler = torch.cuda.amp.GradScaler(init_scale=256.0, enabled=amp)
    target_weights = torch.linspace(-1, 1, 12)
    total = 0.0
    for step in range(args.steps):
        x = torch.randn(8, 12)
        y = x @ target_weights + 0.1 * torch.randn(8)
        x, y = x.cuda(), y.cuda()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=amp):
            loss = nn.functional.smooth_l1_loss(net(x), y, beta=0.5) / args.accumulate
        scaler.scale(loss).backward()
        total += loss.item() * args.accumulate
        if (step + 1) % args.accumulate == 0:
            scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(net.parameters(), max_norm=0.5)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
            print("step", step, "mean loss", total / (step + 1), "norm", norm.item())
    with torch.no_grad():
        x = torch.ones(4, 12).cuda() / 4
        print("prediction", net(x).float().sum().item())


if __name__ == "__main__":
    main()
