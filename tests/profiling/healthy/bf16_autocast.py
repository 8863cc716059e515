"""Healthy: everything heavy in bfloat16, layer norms and the loss in float32 as they should be."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, 4 * width)
        self.outer = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.outer(torch.nn.functional.gelu(self.inner(self.norm(x.float()))))


def main():
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(512) for _ in range(3)), nn.LayerNorm(512), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    x, y = torch.randn(512, 512), torch.randint(10, (512,))
    for _ in range(60):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            outputs = model(x)
        loss = criterion(outputs.float(), y)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
