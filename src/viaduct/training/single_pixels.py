"""A mistake of oneDNN's, avoided: in bf16 and fp16 on the CPU, the gradient of a strided convolution's weights is left
partly unwritten where the image is a single pixel, and holds what was in memory before, now and then NaN.

Seen with torch 2.13 for 3x3 kernels with stride 2; a ResNet for large images meets it when fed small ones. Such a
convolution is done in fp32, where the gradient is whole.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from viaduct.models.padding import SameConv2d, same_padding

Forward = Any  # a layer's own forward pass


def guard_single_pixels(network: nn.Module) -> None:
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d) and max(layer.stride) > 1 and max(layer.kernel_size) > 1:
            layer.forward = partial(_forward, layer, layer.forward)  # type: ignore[method-assign]


def _forward(layer: nn.Conv2d, usual: Forward, x_NCHW: Tensor) -> Tensor:
    if tuple(x_NCHW.shape[2:]) != (1, 1) or not meets_once(layer):
        made: Tensor = usual(x_NCHW)
        return made
    down, across = compute_padding(layer)  # the one cell of the kernel that meets the pixel
    weight = layer.weight[:, :, down : down + 1, across : across + 1]
    with torch.autocast(x_NCHW.device.type, enabled=False):
        full = torch.conv2d(x_NCHW.float(), weight.float(), None, groups=layer.groups)
    return full.to(torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x_NCHW.dtype)


def compute_padding(layer: nn.Conv2d) -> tuple[int, int]:
    """Return the padding above and to the left of a single pixel."""
    if isinstance(layer, SameConv2d):
        down, across = (same_padding(1, *both)[0] for both in zip(layer.kernel_size, layer.stride, strict=True))
        return down, across
    top, left = (int(cells) for cells in layer.padding)
    return top, left


def meets_once(layer: nn.Conv2d) -> bool:
    """Return True if the output is a single pixel too, so that one cell of the kernel meets the input."""
    if isinstance(layer, SameConv2d):
        return True
    sizes = zip(layer.kernel_size, layer.stride, compute_padding(layer), strict=True)
    return layer.dilation == (1, 1) and all(0 <= 1 + 2 * cells - size < stride for size, stride, cells in sizes)
