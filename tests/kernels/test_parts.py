"""Bottleneck blocks that our kernels fit, and the reasons given for others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kernels.foreign_blocks import (
    FOREIGN,
    SmallResNet,
    TimmBottleneck,
    TimmRegNetBottleneck,
    TorchvisionBottleneck,
    TorchvisionRegNetBlock,
    conv3x3,
)
from viaduct.kernels.parts import BottleneckParts, read_parts
from viaduct.models.resnet import Bottleneck, Bottleneck2, Style
from viaduct.models.resnext import GroupedBottleneck


class Scale(nn.Module):
    """Anything that a block may do besides."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


def block(stride: int = 1, **more: Any) -> TorchvisionBottleneck:
    return TorchvisionBottleneck(32, 16, 32 * stride, stride, **more)


def change_block(**layers: Any) -> nn.Module:
    """A block with some of its layers replaced."""
    made = block(2)
    for name, layer in layers.items():
        setattr(made, name, layer)
    return made


def timm(**layers: Any) -> nn.Module:
    made = TimmBottleneck(32, 16, 64, 2)
    for name, layer in layers.items():
        setattr(made, name, layer)
    return made


def frozen() -> nn.Module:
    made = block()
    made.bn2.eval()
    return made


def make_hooked_block() -> nn.Module:
    made = block()
    made.conv2.register_forward_hook(lambda *seen: None)
    return made


def make_block_with_own_forward() -> nn.Module:
    made = block()
    made.bn1.forward = lambda x: x  # type: ignore[method-assign]
    return made


def make_weighted_block() -> nn.Module:
    made = block()
    made.gamma = nn.Parameter(torch.ones(1))
    return made


class Basic(nn.Module):
    """torchvision.models.resnet.BasicBlock, as far as its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3x3(16, 16), nn.BatchNorm2d(16)
        self.conv2, self.bn2 = conv3x3(16, 16), nn.BatchNorm2d(16)
        self.downsample = None


def average_pool_shortcut() -> nn.Sequential:
    """ResNet-D's."""
    return nn.Sequential(nn.AvgPool2d(2, 2), nn.Conv2d(32, 64, 1, bias=False), nn.BatchNorm2d(64))


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "squeeze and excitation": (lambda: timm(se=Scale()), "se is of type Scale"),
    "stochastic depth": (lambda: timm(drop_path=nn.Dropout(0.1)), "drop_path is of type Dropout"),
    "antialiasing": (lambda: timm(aa=nn.AvgPool2d(2)), "aa is of type AvgPool2d"),
    "another activation": (lambda: TimmBottleneck(32, 16, 64, 2, nn.SiLU), "act1 is of type SiLU"),
    "bias": (lambda: change_block(conv1=nn.Conv2d(32, 16, 1)), "conv1 has a bias"),
    "dilation": (lambda: block(dilation=2), "conv2 is dilated"),
    "padding": (
        lambda: change_block(conv2=nn.Conv2d(16, 16, 3, 2, 1, bias=False, padding_mode="reflect")),
        "conv2 pads in a way of its own",
    ),
    "stride in front": (lambda: change_block(conv1=nn.Conv2d(32, 16, 1, 2, bias=False)), "conv1 has a stride"),
    "groups in front": (
        lambda: change_block(conv1=nn.Conv2d(32, 16, 1, groups=2, bias=False)),
        "conv1 is not a plain 1x1",
    ),
    "5x5": (lambda: change_block(conv2=nn.Conv2d(16, 16, 5, 2, 2, bias=False)), "conv2 is not 3x3"),
    "odd channels": (lambda: TorchvisionBottleneck(32, 24, 64), "conv1 has 24 channels, no multiple of 16"),
    "synchronised norm": (lambda: change_block(bn2=nn.SyncBatchNorm(16)), "bn2 is of type SyncBatchNorm"),
    "group norm": (lambda: change_block(bn2=nn.GroupNorm(4, 16)), "bn2 is of type GroupNorm"),
    "norm without weights": (lambda: change_block(bn3=nn.BatchNorm2d(64, affine=False)), "bn3 has no weights"),
    "cumulative average": (
        lambda: change_block(bn3=nn.BatchNorm2d(64, momentum=None)),
        "bn3 averages over all batches",
    ),
    "frozen norm": (frozen, "bn2 is frozen: it is in evaluation mode"),
    "average pool in the shortcut": (
        lambda: change_block(downsample=average_pool_shortcut()),
        "downsample.0 is of type A",
    ),
    "shortcut without norm": (
        lambda: change_block(downsample=nn.Conv2d(32, 64, 1, 2, bias=False)),
        "downsample is not one convolution with its batch norm",
    ),
    "convolution of another class": (
        lambda: change_block(conv2=type("StdConv2d", (nn.Conv2d,), {})(16, 16, 3, 2, 1, bias=False)),
        "conv2 is of type StdConv2d",
    ),
    "hooks": (make_hooked_block, "conv2 has hooks"),
    "a forward pass that was replaced": (make_block_with_own_forward, "the forward pass of bn1 was replaced"),
    "a tensor of its own": (make_weighted_block, "gamma is a tensor besides"),
    "two convolutions": (Basic, "it has two convolutions with norms"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_block_with_something_else_in_it_is_refused_and_the_part_is_named(name: str) -> None:
    make, reason = REFUSED[name]
    assert str(read_parts(make())).startswith(reason)


@pytest.mark.parametrize("module", [nn.Conv2d(3, 3, 3), nn.Sequential(nn.ReLU()), SmallResNet(), nn.Linear(2, 2)])
def test_other_modules_are_no_blocks(module: nn.Module) -> None:
    assert read_parts(module) is None
    assert read_parts(Bottleneck2(32, 16, 1, Style())) is None


@pytest.mark.parametrize("kind", FOREIGN)
def test_blocks_of_other_packages_are_read(kind: str) -> None:
    strided, plain = FOREIGN[kind]().children()
    parts = read_parts(strided)
    assert isinstance(parts, BottleneckParts)
    assert parts.projection is not None
    assert parts.conv2.stride == parts.projection[0].stride == (2, 2)
    assert {id(tensor) for tensor in parts.parameters} == {id(tensor) for tensor in strided.parameters()}
    parts = read_parts(plain)
    assert isinstance(parts, BottleneckParts)
    assert parts.projection is None
    assert len(parts.parameters) == 9


def test_an_identity_before_the_projection_is_nothing() -> None:
    """timm's resnet50d in its first stage."""
    shortcut = nn.Sequential(nn.Identity(), nn.Conv2d(32, 64, 1, bias=False), nn.BatchNorm2d(64))
    made = timm(downsample=shortcut, conv2=conv3x3(16, 16))
    assert isinstance(read_parts(made), BottleneckParts)


def test_our_own_blocks_are_read() -> None:
    assert isinstance(read_parts(Bottleneck(32, 16, 2, Style(), True)), BottleneckParts)
    assert isinstance(read_parts(GroupedBottleneck(64, 128, 1, Style(pad_same=True))), BottleneckParts)


def test_regnet_blocks_with_squeeze_and_excitation_are_refused() -> None:
    block = TimmRegNetBottleneck(32, 48)
    block.se = Scale()
    assert read_parts(block) == "se is of type Scale"
    other = TorchvisionRegNetBlock(32, 48)
    other.f.add_module("se", Scale())
    assert read_parts(other) == "f.se is of type Scale"
