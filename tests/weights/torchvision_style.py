"""A ResNet of bottlenecks with torchvision's names and padding, written out for comparison."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class Bottleneck(nn.Module):
    """1x1, 3x3 with the stride and padding 1, 1x1 to four times the planes."""

    def __init__(self, inputs: int, planes: int, stride: int, groups: int, base: int, epsilon: float) -> None:
        super().__init__()
        width = int(planes * (base / 64)) * groups
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width, eps=epsilon)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(width, eps=epsilon)
        self.conv3 = nn.Conv2d(width, 4 * planes, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * planes, eps=epsilon)
        self.downsample = None
        if stride != 1 or inputs != 4 * planes:
            norm = nn.BatchNorm2d(4 * planes, eps=epsilon)
            self.downsample = nn.Sequential(nn.Conv2d(inputs, 4 * planes, 1, stride, bias=False), norm)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn3(self.conv3(F.relu(self.bn2(self.conv2(out)))))
        return F.relu(out + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """The whole network: a 7x7 stem, a max pool with padding 1, four layers, the mean, a classifier."""

    def __init__(self, blocks: tuple[int, ...], classes: int, groups: int = 1, base: int = 64, epsilon: float = 1e-5):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64, eps=epsilon)
        inputs = 64
        for index, count in enumerate(blocks):
            layer, planes = nn.Sequential(), 64 * 2**index
            for number in range(count):
                stride = 2 if index and number == 0 else 1
                layer.append(Bottleneck(inputs, planes, stride, groups, base, epsilon))
                inputs = 4 * planes
            self.add_module(f"layer{index + 1}", layer)
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = layer(x)
        return self.fc(x.mean((2, 3)))
