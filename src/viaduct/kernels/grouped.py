"""Convolutions larger than 1x1 or with a stride: our kernels for grouped 3x3 convolutions, cuDNN for all others.

Our kernels (grouped.cu) are used if they compile and were faster, in tuning or else on an H200. For TensorFlow's
asymmetric SAME padding only cuDNN needs a padded copy of the images.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from viaduct.kernels import grouped_cuda
from viaduct.kernels.choices import Signature, find_choice
from viaduct.kernels.sizes import DTYPES
from viaduct.models.padding import SameConv2d, same_padding

MIN_PIXELS = 25_000  # pixels of a batch below which cuDNN's weight gradient is faster for groups of 16 channels


def find_paddings(x: Tensor, conv: nn.Conv2d) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the padding (top, bottom) and (left, right)."""
    if isinstance(conv, SameConv2d):
        sizes = zip(x.shape[2:], conv.kernel_size, conv.stride, strict=True)
        down, across = (same_padding(size, kernel, stride) for size, kernel, stride in sizes)
        return down, across
    top, left = (int(pixels) for pixels in conv.padding)
    return (top, top), (left, left)


def compute_output_size(x: Tensor, conv: nn.Conv2d) -> tuple[int, int]:
    """Return height and width of the output."""
    pads = find_paddings(x, conv)
    sizes = zip(x.shape[2:], pads, conv.kernel_size, conv.stride, strict=True)
    height, width = ((size + sum(pad) - kernel) // stride + 1 for size, pad, kernel, stride in sizes)
    return height, width


def is_supported(conv: nn.Conv2d) -> bool:
    """Return True if our kernels support this layer: 3x3, stride 1 or 2, groups of 4, 8, 16 or 32 channels.

    It must have as many output as input channels, a multiple of 64.
    """
    has_known_channels = conv.in_channels == conv.out_channels and conv.in_channels % 64 == 0
    has_known_groups = conv.groups > 1 and conv.in_channels // conv.groups in (4, 8, 16, 32)
    has_known_window = conv.kernel_size == (3, 3) and conv.stride in ((1, 1), (2, 2)) and conv.dilation == (1, 1)
    return has_known_channels and has_known_groups and has_known_window


def make_layer(x: Tensor, conv: nn.Conv2d) -> grouped_cuda.Layer:
    """Return the sizes of a layer for the kernels of grouped.cu."""
    count, channels, height, width = x.shape
    (top, _), (left, _) = find_paddings(x, conv)
    sizes = (count, height, width, *compute_output_size(x, conv), channels, channels // conv.groups)
    return grouped_cuda.Layer(*sizes, conv.stride[0], top, left)


def uses_own_kernel(direction: str, conv: nn.Conv2d, x: Tensor, *tensors: Tensor) -> bool:
    """Return True if the kernels of grouped.cu compute this direction: "forward", "input" or "weight" (gradients)."""
    if not is_supported(conv) or prefers_library(direction, conv, x):
        return False
    return all(grouped_cuda.can_run(tensor) for tensor in (x, *tensors))


def run_own_kernel(
    direction: str, conv: nn.Conv2d, launch: Callable[[], Tensor], x: Tensor, *tensors: Tensor
) -> Tensor | None:
    """Return the result of our kernel, which `launch` runs; None if the library has to compute it."""
    return grouped_cuda.try_launch(launch, x.device) if uses_own_kernel(direction, conv, x, *tensors) else None


def prefers_library(direction: str, conv: nn.Conv2d, x: Tensor) -> bool:
    """Return True if tuning chose the library for a layer; without tuning, if the library was faster on an H200."""
    point = find_choice(f"grouped_{direction}_implementation", make_implementation_signature(x, conv))
    if point is not None:
        return point["implementation"] == "library"
    pixels = x.shape[0] * x.shape[2] * x.shape[3]
    return conv.stride == (1, 1) and is_library_faster(direction, conv.in_channels // conv.groups, pixels)


def make_implementation_signature(x: Tensor, conv: nn.Conv2d) -> Signature:
    """Return the tuning signature: shape (NHWC), channels of a group, stride, has SAME padding, padding, dtype."""
    count, channels, height, width = x.shape
    same, padding = isinstance(conv, SameConv2d), int(conv.padding[0])
    sizes = (count, height, width, channels, channels // conv.groups, conv.stride[0], int(same), padding)
    return (*sizes, DTYPES[x.dtype])


def is_library_faster(direction: str, per_group: int, pixels: int) -> bool:
    """Return True if cuDNN was faster than our kernels on an H200, for layers with stride 1."""
    return per_group == 32 or (direction == "weight" and per_group == 16 and pixels < MIN_PIXELS)


def forward(x: Tensor, weight: Tensor, conv: nn.Conv2d) -> Tensor:
    """Run a convolution with our kernel or the library; `weight` has the dtype of x and is channels_last."""
    output = run_own_kernel("forward", conv, lambda: grouped_cuda.run_convolution(x, weight, make_layer(x, conv)), x)
    return call_library_forward(x, weight, conv) if output is None else output


def call_library_forward(x: Tensor, weight: Tensor, conv: nn.Conv2d) -> Tensor:
    padded, padding = pad_asymmetrically(x, conv)
    return torch.conv2d(padded, weight, None, conv.stride, padding, conv.dilation, conv.groups)


def pad_asymmetrically(x: Tensor, conv: nn.Conv2d) -> tuple[Tensor, tuple[int, int]]:
    """Return the images and the symmetric padding for the library; a padded copy if the padding is asymmetric."""
    (top, bottom), (left, right) = find_paddings(x, conv)
    if (top, left) != (bottom, right):
        x = F.pad(x, (0, right - left, 0, bottom - top))
    return x, (top, left)


def backward(gradient: Tensor, x: Tensor, weight: Tensor, conv: nn.Conv2d) -> tuple[Tensor, Tensor]:
    """Return the gradients w.r.t. input and weight from rows of the output's gradient."""
    height, width = compute_output_size(x, conv)
    output_gradient = gradient.view(len(x), height, width, gradient.shape[1]).permute(0, 3, 1, 2)

    def compute_input() -> Tensor:
        return grouped_cuda.run_input_gradient(output_gradient, weight, make_layer(x, conv))

    def compute_weight() -> Tensor:
        return grouped_cuda.run_weight_gradient(output_gradient, x, make_layer(x, conv))

    input_gradient = run_own_kernel("input", conv, compute_input, x, output_gradient)
    weight_gradient = run_own_kernel("weight", conv, compute_weight, x, output_gradient)
    missing = input_gradient is None, weight_gradient is None
    library_input, library_weight = call_library_backward(output_gradient, x, weight, conv, *missing)
    return (
        library_input if input_gradient is None else input_gradient,
        library_weight if weight_gradient is None else weight_gradient,
    )


def call_library_backward(
    output_gradient: Tensor, x: Tensor, weight: Tensor, conv: nn.Conv2d, *output_mask: bool
) -> tuple[Any, Any]:
    """Return the gradients w.r.t. input and weight; None for a gradient that is False in `output_mask`."""
    if not any(output_mask):
        return None, None
    padded, padding = pad_asymmetrically(x, conv)
    input_gradient, weight_gradient, _ = torch.ops.aten.convolution_backward(
        *(output_gradient, padded, weight, None, list(conv.stride), list(padding), list(conv.dilation)),
        *(False, [0, 0], conv.groups, [*output_mask, False]),
    )
    if padded is not x and input_gradient is not None:
        input_gradient = input_gradient[:, :, : x.shape[2], : x.shape[3]].contiguous(memory_format=torch.channels_last)
    return input_gradient, weight_gradient
