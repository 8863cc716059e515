"""Workaround for a bug of oneDNN (PyTorch's CPU library) in strided convolutions of single pixels, in bf16 and fp16.

If the input is a single pixel, oneDNN leaves part of the gradient of the weights uninitialised, sometimes with NaN.
This was seen with torch 2.13 for 3x3 kernels with stride 2, in a ResNet on very small images. The workaround computes
such a convolution in fp32, with the one cell of the kernel that lies on the pixel.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from viaduct.models.padding import SameConv2d, same_padding


def guard_single_pixels(network: nn.Module) -> None:
    """Change the strided convolutions of a network so that they compute single pixels in fp32."""
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d) and max(layer.stride) > 1 and max(layer.kernel_size) > 1:
            layer.forward = partial(forward_single_pixel, layer, layer.forward)  # type: ignore[method-assign]


def forward_single_pixel(layer: nn.Conv2d, original: Callable[[Tensor], Any], x_NCHW: Tensor) -> Tensor:
    """Compute a single pixel in fp32, and any other input by `original`, the layer's forward method."""
    if tuple(x_NCHW.shape[2:]) != (1, 1) or not uses_one_cell(layer):
        output: Tensor = original(x_NCHW)
        return output
    down, across = compute_padding(layer)  # the cell of the kernel that lies on the pixel
    weight = layer.weight[:, :, down : down + 1, across : across + 1]
    bias = None if layer.bias is None else layer.bias.float()
    with torch.autocast(x_NCHW.device.type, enabled=False):
        output = torch.conv2d(x_NCHW.float(), weight.float(), bias, groups=layer.groups)
    return output.to(torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x_NCHW.dtype)


def compute_padding(layer: nn.Conv2d) -> tuple[int, int]:
    """Return the padding above and to the left of a single pixel."""
    if isinstance(layer, SameConv2d):
        down, across = (same_padding(1, *axis)[0] for axis in zip(layer.kernel_size, layer.stride, strict=True))
        return down, across
    top, left = (int(cells) for cells in layer.padding)
    return top, left


def uses_one_cell(layer: nn.Conv2d) -> bool:
    """Return True if the output for a single pixel is one pixel, computed from one cell of the kernel."""
    if isinstance(layer, SameConv2d):
        return True
    if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        return False  # "same" is not allowed with a stride, and "valid" has no output for a single pixel
    axes = zip(layer.kernel_size, layer.stride, compute_padding(layer), strict=True)
    # An axis has 1 + 2 * padding cells. The kernel must fit at least once, and less than one stride may be left over.
    return layer.dilation == (1, 1) and all(0 <= 1 + 2 * padding - size < stride for size, stride, padding in axes)
