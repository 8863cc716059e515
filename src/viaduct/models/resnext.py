"""ResNeXt 32x4d as in Ascend's model zoo for TensorFlow (Xie et al., https://arxiv.org/abs/1611.05431).

A ResNet whose 3x3 convolutions have 32 groups and twice the width of ResNet's, and whose blocks expand this width
twofold instead of fourfold. Strided 3x3 convolutions pad SAME; the stem pads three pixels on every side. The last norm
of a block starts with a weight of zero. The zoo trains 50 layers; 101 and 152 have ResNet's numbers of blocks.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from torch import nn

from viaduct.models import initialisers
from viaduct.models.family import Family, TensorflowNames
from viaduct.models.links import Link, link_dense, link_numbered_layers
from viaduct.models.resnet import Bottleneck, ResNet, Stem, Style, name_for_torchvision

STYLE = Style(pad_same=True, epsilon=1e-4, momentum=0.1, zero_gamma=True)


class GroupedBottleneck(Bottleneck):
    """1x1 to the width, 3x3 in 32 groups with the stride, 1x1 to twice the width."""

    expansion = 2
    groups = 32


def build_evenly_padded_stem(filters: int, style: Style) -> Stem:
    """Return a stem that pads equally on both sides, unlike the strided convolutions after it."""
    return Stem(filters, replace(style, pad_same=False))


class ResNeXt(ResNet):
    """A class of its own, because `family.tensorflow` recognises its networks by their class."""


def initialise(layer: nn.Module) -> None:
    """Fill grouped kernels as TensorFlow's default fills one variable for all groups, others by variance scaling."""
    if isinstance(layer, nn.Conv2d) and layer.groups > 1:
        initialisers.fill_grouped_glorot_uniform(layer.weight)
    elif isinstance(layer, (nn.Conv2d, nn.Linear)):
        initialisers.fill_variance_scaling(layer.weight)
    if isinstance(layer, nn.Linear):
        nn.init.zeros_(layer.bias)


SCOPE = "fp32_vars/"


def link_tensors(model: nn.Module) -> dict[str, list[Link]]:
    """Return the links to TensorFlow's variables, which are numbered in order of creation, in two layouts.

    The layouts differ in the grouped kernels. The newer one, "a", has one variable for all groups of a kernel,
    `fp32_vars/bottleneck_<stage>_<block>`, which is not counted among the convolutions. The older one, "b", which the
    published checkpoints have, has a variable `conv2d_N` for each of the 32 groups, numbered like other convolutions.
    """

    def name_grouped(name: str) -> str:  # the name of a grouped convolution is stages.<stage>.<block>.conv2
        return f"{SCOPE}bottleneck_{'_'.join(name.split('.')[1:3])}"

    conv, norm, classifier = f"{SCOPE}conv2d", f"{SCOPE}BatchNorm", link_dense("head", f"{SCOPE}dense")
    return {
        "a": [*link_numbered_layers(model, conv, norm, name_grouped), *classifier],
        "b": [*link_numbered_layers(model, conv, norm), *classifier],
    }


resnext = partial(
    ResNeXt,
    block=GroupedBottleneck,
    filters=(128, 256, 512, 1024),
    stem_filters=64,
    style=STYLE,
    stem=build_evenly_padded_stem,
    initialiser=initialise,
)

variants = {
    "resnext50": partial(resnext, blocks=(3, 4, 6, 3)),
    "resnext101": partial(resnext, blocks=(3, 4, 23, 3)),
    "resnext152": partial(resnext, blocks=(3, 8, 36, 3)),
}
family = Family(
    variants,
    preprocess="resnext",
    tensorflow=TensorflowNames(SCOPE, lambda model: isinstance(model, ResNeXt), link_tensors, default_layout="b"),
    torchvision_names=name_for_torchvision,
    peers={"resnext50": "resnext50_32x4d", "resnext101": "resnext101_32x4d"},
)
