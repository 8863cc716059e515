"""ResNet as in TensorFlow's official models, r1 (He et al., https://arxiv.org/abs/1512.03385 and 1603.05027).

Version 1 normalises after every convolution. Version 2, of the second paper, normalises before it and once more after
the last stage. Both differ from torchvision's in three points: the first block of every stage projects its shortcut,
even 64 channels to 64; the max pool is padded SAME; and the running statistics of batch norms average over more steps.
As in torchvision, a bottleneck strides in its 3x3 convolution (elsewhere called v1.5).

Modules are created in the order of TensorFlow's variables, a block's projection before its other layers, so that the
numbers in a checkpoint follow `modules()`. Additions and ReLUs work in place, on outputs of a batch norm or, in version
2, of a convolution; no backward pass reads these outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from viaduct.models import initialisers
from viaduct.models.family import ONLY_LAYOUT, Family, TensorflowNames
from viaduct.models.initialisers import Initialiser
from viaduct.models.links import Link, link_dense, link_numbered_layers
from viaduct.models.padding import SameConv2d, SameMaxPool2d


@dataclass(frozen=True)
class Style:
    """Settings in which networks of the same structure differ: padding, and batch norms."""

    pad_same: bool = False  # strided convolutions pad SAME; otherwise kernel // 2 on every side
    epsilon: float = 1e-5  # of batch norms
    momentum: float = 0.003  # of batch norms, as PyTorch counts it: one minus TensorFlow's decay of 0.997
    zero_gamma: bool = False  # the weight of a block's last norm starts at 0 (arxiv.org/abs/1706.02677, 5.1)

    def conv(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
        """Return a convolution with this style's padding."""
        if self.pad_same and stride > 1:
            return SameConv2d(inputs, outputs, kernel, stride, groups)
        return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False)

    def norm(self, channels: int) -> nn.BatchNorm2d:
        return nn.BatchNorm2d(channels, eps=self.epsilon, momentum=self.momentum)

    def last_norm(self, channels: int) -> nn.BatchNorm2d:
        """Return the norm at the end of a block's residual branch."""
        norm = self.norm(channels)
        if self.zero_gamma:
            nn.init.zeros_(norm.weight)
        return norm


OFFICIAL = Style()


class Stem(nn.Module):
    """Layers before the first stage: one convolution and, for large images, a pool."""

    def __init__(self, filters: int, style: Style, *, kernel: int = 7, stride: int = 2, pool: bool = True) -> None:
        super().__init__()
        self.conv = style.conv(3, filters, kernel, stride)
        self.norm = style.norm(filters)
        self.pool = SameMaxPool2d(kernel=3, stride=2) if pool else nn.Identity()

    def forward(self, x_NCHW: Tensor) -> Tensor:
        pooled: Tensor = self.pool(F.relu(self.norm(self.conv(x_NCHW)), inplace=True))
        return pooled


class BareStem(nn.Module):
    """The stem of version 2, without norm and ReLU: the first block has them."""

    def __init__(self, filters: int, style: Style, *, kernel: int = 7, stride: int = 2, pool: bool = True) -> None:
        super().__init__()
        self.conv = style.conv(3, filters, kernel, stride)
        self.pool = SameMaxPool2d(kernel=3, stride=2) if pool else nn.Identity()

    def forward(self, x_NCHW: Tensor) -> Tensor:
        pooled: Tensor = self.pool(self.conv(x_NCHW))
        return pooled


class Projection(nn.Sequential):
    """Shortcut that changes size or channels: a convolution and its norm."""

    def __init__(self, inputs: int, outputs: int, stride: int, style: Style) -> None:
        super().__init__()
        self.conv = style.conv(inputs, outputs, 1, stride)
        self.norm = style.norm(outputs)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions; the first strides."""

    expansion = 1

    def __init__(self, inputs: int, filters: int, stride: int, style: Style, project: bool = False) -> None:
        super().__init__()
        self.shortcut = Projection(inputs, filters, stride, style) if project else nn.Identity()
        self.conv1 = style.conv(inputs, filters, 3, stride)
        self.norm1 = style.norm(filters)
        self.conv2 = style.conv(filters, filters, 3)
        self.norm2 = style.last_norm(filters)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        branch = F.relu(self.norm1(self.conv1(x_NCHW)), inplace=True)
        branch = self.norm2(self.conv2(branch))
        return F.relu(branch.add_(self.shortcut(x_NCHW)), inplace=True)


class Bottleneck(nn.Module):
    """1x1 down, 3x3 with the stride, 1x1 up to four times the filters."""

    expansion = 4
    groups = 1  # of the 3x3 convolution

    def __init__(self, inputs: int, filters: int, stride: int, style: Style, project: bool = False) -> None:
        super().__init__()
        outputs = filters * self.expansion
        self.shortcut = Projection(inputs, outputs, stride, style) if project else nn.Identity()
        self.conv1 = style.conv(inputs, filters, 1)
        self.norm1 = style.norm(filters)
        self.conv2 = style.conv(filters, filters, 3, stride, self.groups)
        self.norm2 = style.norm(filters)
        self.conv3 = style.conv(filters, outputs, 1)
        self.norm3 = style.last_norm(outputs)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        branch = F.relu(self.norm1(self.conv1(x_NCHW)), inplace=True)
        branch = F.relu(self.norm2(self.conv2(branch)), inplace=True)
        branch = self.norm3(self.conv3(branch))
        return F.relu(branch.add_(self.shortcut(x_NCHW)), inplace=True)


class BasicBlock2(nn.Module):
    """Version 2 of the basic block; a projection reads the activated input, an identity the raw one."""

    expansion = 1

    def __init__(self, inputs: int, filters: int, stride: int, style: Style, project: bool = False) -> None:
        super().__init__()
        self.norm1 = style.norm(inputs)
        self.projection = style.conv(inputs, filters, 1, stride) if project else None
        self.conv1 = style.conv(inputs, filters, 3, stride)
        self.norm2 = style.norm(filters)
        self.conv2 = style.conv(filters, filters, 3)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        active = F.relu(self.norm1(x_NCHW), inplace=True)
        shortcut = x_NCHW if self.projection is None else self.projection(active)
        branch: Tensor = self.conv2(F.relu(self.norm2(self.conv1(active)), inplace=True))
        return branch.add_(shortcut)


class Bottleneck2(nn.Module):
    """Version 2 of the bottleneck."""

    expansion = 4

    def __init__(self, inputs: int, filters: int, stride: int, style: Style, project: bool = False) -> None:
        super().__init__()
        outputs = filters * self.expansion
        self.norm1 = style.norm(inputs)
        self.projection = style.conv(inputs, outputs, 1, stride) if project else None
        self.conv1 = style.conv(inputs, filters, 1)
        self.norm2 = style.norm(filters)
        self.conv2 = style.conv(filters, filters, 3, stride)
        self.norm3 = style.norm(filters)
        self.conv3 = style.conv(filters, outputs, 1)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        active = F.relu(self.norm1(x_NCHW), inplace=True)
        shortcut = x_NCHW if self.projection is None else self.projection(active)
        branch = self.conv2(F.relu(self.norm2(self.conv1(active)), inplace=True))
        branch = self.conv3(F.relu(self.norm3(branch), inplace=True))
        added: Tensor = branch.add_(shortcut)
        return added


Block = type[BasicBlock] | type[Bottleneck] | type[BasicBlock2] | type[Bottleneck2]


class ResNet(nn.Module):
    """Stem, stages of blocks, mean over the image, classifier."""

    def __init__(
        self,
        classes: int,
        *,
        block: Block,
        blocks: Sequence[int],
        filters: Sequence[int] = (64, 128, 256, 512),
        stem_filters: int | None = None,  # None: as many as the first stage
        style: Style = OFFICIAL,
        stem: Callable[[int, Style], nn.Module] = Stem,
        initialiser: Initialiser = initialisers.tf_layers,
    ) -> None:
        super().__init__()
        self.style = style
        channels = [stem_filters or filters[0], *(width * block.expansion for width in filters)]
        self.stem = stem(channels[0], style)
        self.stages = nn.Sequential()
        for index, (count, width) in enumerate(zip(blocks, filters, strict=True)):
            first = block(channels[index], width, 1 if index == 0 else 2, style, project=True)
            others = (block(channels[index + 1], width, 1, style) for _ in range(count - 1))
            self.stages.append(nn.Sequential(first, *others))
        self.norm = style.norm(channels[-1]) if block in (BasicBlock2, Bottleneck2) else None
        self.head = nn.Linear(channels[-1], classes)
        self.apply(initialiser)

    def forward(self, images_NCHW: Tensor) -> Tensor:
        features = self.features(images_NCHW)
        return at_least_float32(self.head(features.mean((2, 3))))

    def features(self, images_NCHW: Tensor) -> Tensor:
        """Return the last stage's output, before the mean."""
        features: Tensor = self.stages(self.stem(images_NCHW))
        return features if self.norm is None else F.relu(self.norm(features), inplace=True)


def at_least_float32(logits: Tensor) -> Tensor:
    """Convert logits of a narrower type to float32, for the loss."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


# Names in TensorFlow's official ResNet r1: layers are numbered in the order of creation, which is that of our modules:
# `resnet_model/conv2d`, `conv2d_1` …, `batch_normalization`, `batch_normalization_1` ….
SCOPE = "resnet_model/"


def is_official(model: nn.Module) -> bool:
    """Return True for a ResNet with the stem, padding and epsilon of TensorFlow's official ResNets.

    The official ones with a small stem (kernel 3) have no bottlenecks; `resnet50_stem3`, which has them, is viaduct's.
    """
    if type(model) is not ResNet or model.style.pad_same or model.style.epsilon != OFFICIAL.epsilon:
        return False
    stem = next(module for module in model.modules() if isinstance(module, nn.Conv2d))
    has_bottlenecks = any(isinstance(module, Bottleneck | Bottleneck2) for module in model.modules())
    return stem.kernel_size[0] == 7 or not has_bottlenecks


def link_official(model: nn.Module) -> dict[str, list[Link]]:
    """Return the links to TensorFlow's variables."""
    links = link_numbered_layers(model, f"{SCOPE}conv2d", f"{SCOPE}batch_normalization")
    return {ONLY_LAYOUT: [*links, *link_dense("head", f"{SCOPE}dense")]}


def name_for_torchvision(model: nn.Module) -> dict[str, str]:
    """Return torchvision's name of each tensor; empty for a structure that torchvision does not have.

    torchvision has the networks of bottlenecks. Its basic blocks have no projection in the first stage, unlike ours.
    """
    if not isinstance(model, ResNet) or not isinstance(model.stem, Stem) or len(model.stages) != 4:
        return {}
    blocks = [block for stage in model.stages for block in stage.children()]
    if model.stem.conv.kernel_size[0] != 7 or not all(isinstance(block, Bottleneck) for block in blocks):
        return {}
    return {name: rename_for_torchvision(name) for name in model.state_dict()}


def rename_for_torchvision(name: str) -> str:
    """Return `layer2.0.downsample.0.weight` for `stages.1.0.shortcut.conv.weight`, and so on."""
    module, _, leaf = name.rpartition(".")
    parts = module.split(".")
    if parts[0] == "head":
        return f"fc.{leaf}"
    if parts[0] == "stem":
        return f"{'conv1' if parts[1] == 'conv' else 'bn1'}.{leaf}"
    _, stage, block, *layer = parts
    if layer[0] == "shortcut":
        layer = ["downsample", "0" if layer[1] == "conv" else "1"]
    return f"layer{int(stage) + 1}.{block}.{'.'.join(layer).replace('norm', 'bn')}.{leaf}"


official_names = TensorflowNames(SCOPE, is_official, link_official)

version1 = partial(ResNet, block=Bottleneck)
version2 = partial(ResNet, block=Bottleneck2, stem=BareStem)
DEEP = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3), 200: (3, 24, 36, 3)}  # depth -> blocks of each stage
variants: dict[str, Callable[..., nn.Module]] = {
    "resnet18_v1": partial(version1, block=BasicBlock, blocks=(2, 2, 2, 2)),
    "resnet34_v1": partial(version1, block=BasicBlock, blocks=(3, 4, 6, 3)),
    **{f"resnet{depth}_v1": partial(version1, blocks=blocks) for depth, blocks in DEEP.items()},
    "resnet18_v2": partial(version2, block=BasicBlock2, blocks=(2, 2, 2, 2)),
    "resnet34_v2": partial(version2, block=BasicBlock2, blocks=(3, 4, 6, 3)),
    **{f"resnet{depth}_v2": partial(version2, blocks=blocks) for depth, blocks in DEEP.items()},
}
family = Family(
    variants,
    tensorflow=official_names,
    torchvision_names=name_for_torchvision,
    peers={f"resnet{depth}_v1": f"resnet{depth}" for depth in (18, 34, 50, 101, 152)},
)
