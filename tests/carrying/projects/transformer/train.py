"""A small transformer: parameter groups, warm-up, causal attention, sampling from it at the end."""

import math

import torch
from model import Config, Transformer


def rate_at(step, warmup=4, last=16, peak=0.01, floor=0.001):
    if step < warmup:
        return peak * (step + 1) / warmup
    if step > last:
        return floor
    share = (step - warmup) / (last - warmup)
    return floor + 0.5 * (1.0 + math.cos(math.pi * share)) * (peak - floor)


def make_optimizer(net, decay):
    decayed = [weight for weight in net.parameters() if weight.dim() >= 2]
    plain = [weight for weight in net.parameters() if weight.dim() < 2]
    groups = [{"params": decayed, "weight_decay": decay}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.95))


@torch.no_grad()
def estimate(net, data, device):
    net.eval()
    losses = torch.zeros(3)
    for k in range(3):
        _, loss = net(*make_batch(data, device, 4))
        losses[k] = loss.item()
    net.train()
    return losses.mean().item()


def make_batch(data, device, size):
    begins = torch.randint(len(data) - 8, (size,))
    x = torch.stack([data[i : i + 8] for i in begins])
    y = torch.stack([data[i + 1 : i + 9] for i in begins])
    return x.to(device), y.to(device)


def main():
    torch.manual_seed(1337)
    device = "cuda"
    data = (torch.arange(200) * 7 % 11).long()
    net = Transformer(Config()).to(device)
    optimizer = make_optimizer(net, 0.1)
    for step in range(8):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step)
        if step % 4 == 0:
            print(f"step {step}: held out {estimate(net, data[150:], device):.5f}")
        _, loss = net(*make_batch(data[:150], device, 6))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step}: loss {loss.item():.6f}")
    net.eval()
    print(net.generate(torch.zeros(1, 1, dtype=torch.long, device=device), 6)[0].tolist())


if __name__ == "__main__":
    main()
