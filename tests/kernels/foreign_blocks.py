"""Blocks as torchvision 0.28 and timm 1.0 write them, without these packages: names, layers and order of operations."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn


def conv3x3(inputs: int, outputs: int, stride: int = 1, groups: int = 1, dilation: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, dilation, dilation, groups, bias=False)


def project(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class TorchvisionBottleneck(nn.Module):
    """torchvision.models.resnet.Bottleneck."""

    def __init__(
        self, inputs: int, width: int, outputs: int, stride: int = 1, groups: int = 1, dilation: int = 1
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv3x3(width, width, stride, groups, dilation)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = project(inputs, outputs, stride) if stride != 1 or inputs != outputs else None
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class TimmBottleneck(nn.Module):
    """timm.models.resnet.Bottleneck; `se`, `aa` and `drop_path` are there or not."""

    def __init__(self, inputs: int, width: int, outputs: int, stride: int = 1, act: type[nn.Module] = nn.ReLU) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, kernel_size=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.act1 = act(inplace=True)
        self.conv2 = conv3x3(width, width, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.drop_block = nn.Identity()
        self.act2 = act(inplace=True)
        self.aa = nn.Identity()
        self.conv3 = nn.Conv2d(width, outputs, kernel_size=1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.se: nn.Module | None = None
        self.act3 = act(inplace=True)
        self.downsample = project(inputs, outputs, stride) if stride != 1 or inputs != outputs else None
        self.drop_path: nn.Module | None = None
        nn.init.zeros_(self.bn3.weight)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x
        x = self.act1(self.bn1(self.conv1(x)))
        x = self.aa(self.act2(self.drop_block(self.bn2(self.conv2(x)))))
        x = self.bn3(self.conv3(x))
        if self.se is not None:
            x = self.se(x)
        if self.drop_path is not None:
            x = self.drop_path(x)
        if self.downsample is not None:
            shortcut = self.downsample(shortcut)
        x += shortcut
        return self.act3(x)


class TimmNormAct(nn.BatchNorm2d):
    """timm.layers.BatchNormAct2d: a batch norm with an activation inside."""

    def __init__(self, features: int, apply_act: bool = True) -> None:
        super().__init__(features)
        self.drop = nn.Identity()
        self.act = nn.ReLU(inplace=True) if apply_act else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.drop(super().forward(x)))


class TimmConvNormAct(nn.Module):
    """timm.layers.ConvNormAct."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1, apply_act: bool = True
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.bn = TimmNormAct(outputs, apply_act)
        self.aa = None

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.conv(x))


class TimmRegNetBottleneck(nn.Module):
    """timm.models.regnet.Bottleneck without squeeze and excitation; a shortcut of None is none."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1, group_size: int = 16) -> None:
        super().__init__()
        self.conv1 = TimmConvNormAct(inputs, outputs)
        self.conv2 = TimmConvNormAct(outputs, outputs, 3, stride, outputs // group_size)
        self.se = nn.Identity()
        self.conv3 = TimmConvNormAct(outputs, outputs, apply_act=False)
        self.act3 = nn.ReLU()
        self.downsample: nn.Module | None = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.downsample = TimmConvNormAct(inputs, outputs, 1, stride, apply_act=False)
        self.drop_path = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x
        x = self.conv3(self.se(self.conv2(self.conv1(x))))
        if self.downsample is not None:
            x = self.drop_path(x) + self.downsample(shortcut)
        return self.act3(x)


class ConvNormActivation(nn.Sequential):
    """torchvision.ops.Conv2dNormActivation."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, groups: int = 1, act: bool = True) -> None:
        conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
        super().__init__(conv, nn.BatchNorm2d(outputs), *([nn.ReLU(inplace=True)] if act else []))


class TorchvisionRegNetBlock(nn.Module):
    """torchvision.models.regnet.ResBottleneckBlock without squeeze and excitation."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1, group_width: int = 16) -> None:
        super().__init__()
        self.proj = None
        if inputs != outputs or stride != 1:
            self.proj = ConvNormActivation(inputs, outputs, 1, stride, act=False)
        layers: dict[str, nn.Module] = OrderedDict()
        layers["a"] = ConvNormActivation(inputs, outputs, 1, 1)
        layers["b"] = ConvNormActivation(outputs, outputs, 3, stride, outputs // group_width)
        layers["c"] = ConvNormActivation(outputs, outputs, 1, 1, act=False)
        self.f = nn.Sequential(layers)
        self.activation = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.f(x) if self.proj is None else self.proj(x) + self.f(x)
        return self.activation(x)


class SmallResNet(nn.Module):
    """A network of torchvision's kind: the stem is layers of its own."""

    def __init__(self, block: type[Any] = TorchvisionBottleneck) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(32)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(block(32, 16, 64, 2), block(64, 16, 64))
        self.fc = nn.Linear(64, 10)

    def forward_features(self, x: Tensor) -> Tensor:
        return self.layer1(self.maxpool(self.relu(self.bn1(self.conv1(x)))))

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(F.adaptive_avg_pool2d(self.forward_features(x), 1).flatten(1))


# Pairs of a strided block with a projection and one without; 32 channels go in.
FOREIGN: dict[str, Callable[[], nn.Module]] = {
    "torchvision": lambda: nn.Sequential(TorchvisionBottleneck(32, 16, 64, 2), TorchvisionBottleneck(64, 16, 64)),
    "torchvision grouped": lambda: nn.Sequential(
        TorchvisionBottleneck(32, 128, 64, 2, 32), TorchvisionBottleneck(64, 128, 64, 1, 32)
    ),
    "torchvision RegNet": lambda: nn.Sequential(TorchvisionRegNetBlock(32, 48, 2), TorchvisionRegNetBlock(48, 48)),
    "timm": lambda: nn.Sequential(TimmBottleneck(32, 16, 64, 2), TimmBottleneck(64, 16, 64)),
    "timm RegNet": lambda: nn.Sequential(TimmRegNetBottleneck(32, 48, 2), TimmRegNetBottleneck(48, 48)),
}
