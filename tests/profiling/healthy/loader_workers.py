"""Healthy: a DataLoader whose worker keeps up with the network."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    criterion = nn.CrossEntropyLoss()
    samples = TensorDataset(torch.randn(6400, 784), torch.randint(10, (6400,)))
    loader = DataLoader(samples, batch_size=128, shuffle=True, num_workers=1, persistent_workers=True)
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
