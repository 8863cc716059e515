"""A narrow residual network with all usual kinds of layers, trained for a few steps on any device."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """A bottleneck with a projection."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        middle = outputs // 4
        self.branch = nn.Sequential(
            nn.Conv2d(inputs, middle, 1, bias=False),
            nn.BatchNorm2d(middle),
            nn.ReLU(inplace=True),
            nn.Conv2d(middle, middle, 3, stride, 1, bias=False),
            nn.BatchNorm2d(middle),
            nn.ReLU(inplace=True),
            nn.Conv2d(middle, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.branch(x) + self.shortcut(x))


def make_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 7, 2, 3, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
        Block(16, 32, 1),
        Block(32, 64, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(64, 10),
    )


def make_batches(count: int, seed: int = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(4, 3, 32, 32, generator=generator), torch.randint(0, 10, (4,), generator=generator))
        for _ in range(count)
    ]


def train(device: str, optimizer: str = "SGD", steps: int = 3, **options: object) -> dict[str, torch.Tensor]:
    """Return the weights and statistics after some steps on a device."""
    model = make_network().to(device)
    torch.manual_seed(1)
    updater = getattr(torch.optim, optimizer)(model.parameters(), **{"lr": 0.01, **options})
    for images, labels in make_batches(steps):
        loss = functional.cross_entropy(model(images.to(device)), labels.to(device))
        updater.zero_grad()
        loss.backward()
        updater.step()
    return {name: value.cpu() for name, value in model.state_dict().items()}


def have_equal_tensors(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def make_perceptron() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
