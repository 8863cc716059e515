"""Names in TensorFlow's official ResNet r1, versions 1 and 2, for ImageNet and CIFAR-10.

Layers are numbered as they were created: `resnet_model/conv2d`, `conv2d_1` …, `batch_normalization`,
`batch_normalization_1` …. Our modules stand in that order, so the numbers follow `modules()`.
"""

from __future__ import annotations

from torch import nn

from viaduct.models.resnet import Bottleneck, Bottleneck2, ResNet
from viaduct.models.resnet_v15 import ResNetV15
from viaduct.models.resnext import ResNeXt
from viaduct.weights.maps.link import Link, conv, dense, norm, numbered

SCOPE = "resnet_model/"
FILES: tuple[str, ...] = ("resnet", "resnet_cifar")
EPSILON = 1e-5


def claims(model: nn.Module) -> bool:
    """A ResNet that pads as the official one does; behind the small stem it has basic blocks only."""
    if not isinstance(model, ResNet) or isinstance(model, ResNeXt | ResNetV15):
        return False
    if model.style.same or model.style.epsilon != EPSILON:
        return False
    stem = next(module for module in model.modules() if isinstance(module, nn.Conv2d))
    wide = any(isinstance(module, Bottleneck | Bottleneck2) for module in model.modules())
    return stem.kernel_size[0] == 7 or not wide


def layouts(model: nn.Module) -> dict[str, list[Link]]:
    links: list[Link] = []
    convs = norms = 0
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv2d):
            links.append(conv(name, f"{SCOPE}{numbered('conv2d', convs)}/kernel"))
            convs += 1
        elif isinstance(module, nn.BatchNorm2d):
            links += norm(name, SCOPE + numbered("batch_normalization", norms))
            norms += 1
    return {"": [*links, *dense("head", f"{SCOPE}dense")]}
