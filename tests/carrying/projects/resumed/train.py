"""Writes a checkpoint after each epoch, keeps the best, and goes on from one that it reads."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def save(state, is_best, folder):
    os.makedirs(folder, exist_ok=True)
    torch.save(state, os.path.join(folder, "last.pth"))
    if is_best:
        torch.save(state["net"], os.path.join(folder, "best.pth"))


def load(path, net, optimizer):
    state = torch.load(path, map_location="cuda")
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epoch"], state["best"]


def run_epoch(net, loader, optimizer=None):
    total, count = 0.0, 0
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        with torch.set_grad_enabled(optimizer is not None):
            loss = nn.functional.mse_loss(net(x).squeeze(-1), y)
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        total += loss.item() * len(x)
        count += len(x)
    return total / count


def main():
    generator = torch.Generator().manual_seed(31)
    x = torch.randn(50, 4, generator=generator)
    y = x.sum(1) + 0.1 * x[:, 0] ** 2
    train = DataLoader(TensorDataset(x[:40], y[:40]), batch_size=10, shuffle=True)
    valid = DataLoader(TensorDataset(x[40:], y[40:]), batch_size=10)
    net = nn.Sequential(nn.Linear(4, 8), nn.ELU(alpha=0.8), nn.Linear(8, 1)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.8, dampening=0.1)
    best, begin = 1e9, 0
    for part in range(2):
        if part == 1:
            begin, best = load("checkpoints/last.pth", net, optimizer)
        for epoch in range(begin, begin + 1):
            train_loss = run_epoch(net, train, optimizer)
            valid_loss = run_epoch(net, valid)
            is_best = valid_loss < best
            best = min(valid_loss, best)
            state = {"epoch": epoch + 1, "net": net.state_dict(), "optimizer": optimizer.state_dict(), "best": best}
            save(state, is_best, "checkpoints")
            print("epoch", epoch, "train", train_loss, "valid", valid_loss)


if __name__ == "__main__":
    main()
