"""Healthy: gradients of four small batches make one step."""

import torch
from torch import nn


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    x, y = torch.randn(4, 128, 512), torch.randint(10, (4, 128))
    for number in range(240):
        loss = criterion(model(x[number % 4]), y[number % 4]) / 4
        loss.backward()
        if number % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
