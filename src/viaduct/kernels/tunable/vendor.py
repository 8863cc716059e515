"""Convolutions of the vendor's library: its own search among algorithms, and the memory layout.

The caller applies a point to the whole step (`torch.backends.cudnn.benchmark`, `memory_format`): both are settings of
the process or network, so only the case here reads the choice at a launch. A signature is the shape of the input
(NCHW), filters, kernel, stride, padding, groups, dtype.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from viaduct.kernels.choices import Key, Signature, find_choice
from viaduct.kernels.tunable.base import Case, Limits, Tunable, make_draw, read_sizes
from viaduct.search_space import Parameter, Point, Space

LAYOUTS = {"channels_last": torch.channels_last, "contiguous": torch.contiguous_format}
DEFAULT: Point = {"benchmark": False, "layout": "channels_last"}


def make_space(signature: Signature, limits: Limits) -> Space:
    return Space((Parameter("benchmark", (False, True)), Parameter("layout", tuple(LAYOUTS))), default=DEFAULT)


def make_case(key: Key, signature: Signature, device: torch.device) -> Case:
    """Return the case of the forward pass and both gradients of a library convolution."""
    count, channels, height, width, filters, kernel, stride, padding, groups = read_sizes(signature)
    draw = make_draw(signature, device)
    x = draw.images(count, channels, height, width)
    weight = draw.images(filters, channels // groups, kernel, kernel) * 0.2
    out = [(size + 2 * padding - kernel) // stride + 1 for size in (height, width)]
    gradient = draw.images(count, filters, out[0], out[1])
    tensors = (x, weight, gradient)
    by_layout = {name: [tensor.contiguous(memory_format=form) for tensor in tensors] for name, form in LAYOUTS.items()}

    def compute(inputs: Sequence[Tensor]) -> list[Tensor]:
        x, weight, gradient = inputs
        options = ([stride] * 2, [padding] * 2, [1, 1])
        y = torch.conv2d(x, weight, None, *options, groups)
        gradients = torch.ops.aten.convolution_backward(
            gradient, x, weight, None, *options, False, [0, 0], groups, [True, True, False]
        )
        return [y, gradients[0], gradients[1]]

    def launch() -> list[Tensor]:
        point = find_choice(*key) or DEFAULT
        before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = bool(point["benchmark"])
        try:
            return compute(by_layout[str(point["layout"])])
        finally:
            torch.backends.cudnn.benchmark = before

    return Case(key, launch, lambda: compute([tensor.double() for tensor in tensors]))


TUNABLES = [Tunable("library_convolution", make_space, make_case)]
