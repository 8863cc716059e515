"""Names in NVIDIA's and Cambricon's ResNet-50 v1.5: a scope for each block, the same three leaves in each."""

from __future__ import annotations

from torch import nn

from viaduct.models.resnet_v15 import ResNetV15
from viaduct.weights.maps.link import Link, conv, dense, norm

SCOPE = "resnet50/"
FILES: tuple[str, ...] = ("resnet_v15",)


def claims(model: nn.Module) -> bool:
    return isinstance(model, ResNetV15)


def layouts(model: nn.Module) -> dict[str, list[Link]]:
    assert isinstance(model, ResNetV15)
    links = layer("stem.conv", "stem.norm", f"{SCOPE}conv2d")
    for stage, blocks in enumerate(model.stages):
        assert isinstance(blocks, nn.Sequential)
        for index, _ in enumerate(blocks):
            links += block(f"stages.{stage}.{index}", f"{SCOPE}btlnck_block_{stage}_{index}", project=index == 0)
    return {"": [*links, *dense("head", f"{SCOPE}output/dense")]}


def block(module: str, scope: str, project: bool) -> list[Link]:
    links = layer(f"{module}.shortcut.conv", f"{module}.shortcut.norm", f"{scope}/shortcut/conv2d") if project else []
    for number in (1, 2, 3):
        links += layer(f"{module}.conv{number}", f"{module}.norm{number}", f"{scope}/bottleneck_{number}")
    return links


def layer(conv_name: str, norm_name: str, scope: str) -> list[Link]:
    return [conv(conv_name, f"{scope}/conv2d/kernel"), *norm(norm_name, f"{scope}/BatchNorm")]
