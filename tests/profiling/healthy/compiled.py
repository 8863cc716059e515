"""Healthy: a network that torch.compile compiles once, for shapes that stay the same."""

import torch
from torch import nn


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    x, y = torch.randn(256, 512), torch.randint(10, (256,))
    for _ in range(60):
        optimizer.zero_grad()
        loss = criterion(compiled(x), y)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
