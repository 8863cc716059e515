"""Planted: torch.compile for fixed shapes, and batches of another size in every step."""

import torch
import torch._dynamo
from torch import nn


def main():
    torch.manual_seed(0)
    for name in ("recompile_limit", "cache_size_limit"):  # beyond the limit it would run uncompiled
        if hasattr(torch._dynamo.config, name):
            setattr(torch._dynamo.config, name, 1000)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    compiled = torch.compile(model, backend="eager", dynamic=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    for step in range(60):
        x, y = torch.randn(128 + step, 256), torch.randint(10, (128 + step,))
        optimizer.zero_grad()
        loss = criterion(compiled(x), y)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
