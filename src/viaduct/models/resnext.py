"""ResNeXt 32x4d as in Ascend's model zoo for TensorFlow (Xie et al., https://arxiv.org/abs/1611.05431).

A ResNet whose 3x3 convolution works in 32 groups, twice as wide, and whose blocks widen twofold. Strided 3x3
convolutions pad SAME, the stem three cells on every side. Blocks start as their shortcuts. The zoo trains 50
layers; 101 and 152 have the usual numbers of blocks.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from viaduct.models import initialisers
from viaduct.models.resnet import Bottleneck, ResNet, Stem, Style

STYLE = Style(same=True, epsilon=1e-4, momentum=0.1, zero_gamma=True)


class GroupedBottleneck(Bottleneck):
    """1x1 to the width, 3x3 in 32 groups with the stride, 1x1 to twice the width."""

    expansion = 2
    groups = 32


def evenly_padded_stem(filters: int, style: Style) -> Stem:
    return Stem(filters, replace(style, same=False))


class ResNeXt(ResNet):
    """A ResNet of grouped bottlenecks, whose stem is narrower than its first stage."""


resnext = partial(
    ResNeXt,
    block=GroupedBottleneck,
    filters=(128, 256, 512, 1024),
    stem_filters=64,
    style=STYLE,
    stem=evenly_padded_stem,
    initialiser=initialisers.resnext,
)

INPUT_SIZE = 224
CLASSES = 1001
variants = {
    "resnext50": partial(resnext, blocks=(3, 4, 6, 3)),
    "resnext101": partial(resnext, blocks=(3, 4, 23, 3)),
    "resnext152": partial(resnext, blocks=(3, 8, 36, 3)),
}
