"""ResNet-50 v1.5 as NVIDIA and Cambricon train it in TensorFlow (He et al., https://arxiv.org/abs/1512.03385).

The structure is that of `resnet50_v1`, which also strides in the 3x3 convolution. Three points differ. Every
convolution pads SAME, so the stem pads (2, 3) instead of (3, 3); running statistics of norms average over ten steps
instead of 330; and all initial weights have a variance of 2 / fan-in.
"""

from __future__ import annotations

from functools import partial

from torch import nn

from viaduct.models import initialisers
from viaduct.models.family import ONLY_LAYOUT, Family, TensorflowNames
from viaduct.models.links import Link, link_conv, link_dense, link_norm
from viaduct.models.resnet import Bottleneck, ResNet, Style, name_for_torchvision

STYLE = Style(pad_same=True, momentum=0.1)
SCOPE = "resnet50/"


class ResNetV15(ResNet):
    """A class of its own, because `family.tensorflow` recognises its networks by their class."""


def link_tensors(model: nn.Module) -> dict[str, list[Link]]:
    """Return the links to TensorFlow's variables, which have a scope for each block."""
    assert isinstance(model, ResNetV15)
    links = link_layer("stem.conv", "stem.norm", f"{SCOPE}conv2d")
    for stage, blocks in enumerate(model.stages):
        assert isinstance(blocks, nn.Sequential)
        for index in range(len(blocks)):
            links += link_block(f"stages.{stage}.{index}", f"{SCOPE}btlnck_block_{stage}_{index}", project=index == 0)
    return {ONLY_LAYOUT: [*links, *link_dense("head", f"{SCOPE}output/dense")]}


def link_block(module: str, scope: str, project: bool) -> list[Link]:
    """Link the layers of a bottleneck, with those of its shortcut if it projects."""
    links = []
    if project:
        links += link_layer(f"{module}.shortcut.conv", f"{module}.shortcut.norm", f"{scope}/shortcut/conv2d")
    for number in (1, 2, 3):
        links += link_layer(f"{module}.conv{number}", f"{module}.norm{number}", f"{scope}/bottleneck_{number}")
    return links


def link_layer(conv_name: str, norm_name: str, scope: str) -> list[Link]:
    """Link a convolution and the normalisation after it."""
    return [link_conv(conv_name, f"{scope}/conv2d/kernel"), *link_norm(norm_name, f"{scope}/BatchNorm")]


variants = {
    "resnet50_v15": partial(
        ResNetV15, block=Bottleneck, blocks=(3, 4, 6, 3), style=STYLE, initialiser=initialisers.nvidia
    ),
}
family = Family(
    variants,
    preprocess="v15",
    tensorflow=TensorflowNames(SCOPE, lambda model: isinstance(model, ResNetV15), link_tensors),
    torchvision_names=name_for_torchvision,
    peers={"resnet50_v15": "resnet50"},
)
