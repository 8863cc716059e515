"""Settings and helpers lie in a folder on PYTHONPATH."""

import argparse

import torch
from helpers import accuracy, normalize
from settings import BATCH, DECAY, EPOCHS, RATE, WIDTH
from torch import nn


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=RATE)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--clip", type=float, default=0.5)
    return parser.parse_args()


def main():
    args = parse_arguments()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator().manual_seed(5)
    images = normalize(torch.rand(48, 10, generator=generator))
    labels = images[:, :3].argmax(1)
    net = nn.Sequential(nn.Linear(10, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 3)).to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=args.lr, weight_decay=DECAY, eps=1e-7)
    step = 0
    for epoch in range(EPOCHS):
        order = torch.randperm(len(images))
        for begin in range(0, len(images), BATCH):
            chosen = order[begin : begin + BATCH]
            x, y = images[chosen].to(device), labels[chosen].to(device)
            scale = min(1.0, (step + 1) / args.warmup)
            for group in optimizer.param_groups:
                group["lr"] = args.lr * scale
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), args.clip)
            optimizer.step()
            step += 1
        with torch.no_grad():
            right = accuracy(net(images.to(device)).cpu(), labels)
        print("epoch", epoch, "loss", round(loss.item(), 5), "accuracy", round(right, 4))


if __name__ == "__main__":
    main()
