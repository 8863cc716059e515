"""Planted: two samples per step, so that Python and dispatch take most of the time."""

import torch
from torch import nn


def main():
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    samples = torch.randn(512, 64), torch.randint(10, (512,))
    for step in range(200):
        x, y = (part[2 * step : 2 * step + 2] for part in samples)
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
