"""Planted: the network computes in bfloat16, but for one wide layer in which autocast is switched off."""

import torch
from torch import nn


class Wide(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, 4 * width)
        self.outer = nn.Linear(4 * width, width)

    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            return self.outer(torch.relu(self.inner(x.float())))


def main():
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(768, 768), nn.ReLU()) for _ in range(6)]
    model = nn.Sequential(*layers[:3], Wide(768), *layers[3:], nn.Linear(768, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    x, y = torch.randn(256, 768), torch.randint(10, (256,))
    for _ in range(60):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
