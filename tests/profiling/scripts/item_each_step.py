"""Planted: the loss is read with .item() in every step."""

import torch
from torch import nn


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    batches = [(torch.randn(256, 512), torch.randint(10, (256,))) for _ in range(4)]
    total = 0.0
    for step in range(60):
        x, y = batches[step % 4]
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"mean loss {total / 60:.3f}")


if __name__ == "__main__":
    main()
