"""ResNet-50 v1.5 as NVIDIA and Cambricon train it in TensorFlow (He et al., https://arxiv.org/abs/1512.03385).

The drawing is that of `resnet50_v1`, whose bottleneck strides in its middle too. Every convolution pads SAME,
so the stem pads (2, 3) where the official network pads (3, 3); norms remember ten steps instead of 330; and
weights start twice as wide.
"""

from __future__ import annotations

from functools import partial

from viaduct.models import initialisers
from viaduct.models.resnet import Bottleneck, ResNet, Style

STYLE = Style(same=True, momentum=0.1)


class ResNetV15(ResNet):
    """A ResNet whose checkpoints have names of their own."""


INPUT_SIZE = 224
CLASSES = 1001
variants = {
    "resnet50_v15": partial(
        ResNetV15, block=Bottleneck, blocks=(3, 4, 6, 3), style=STYLE, initialiser=initialisers.nvidia
    ),
}
