"""Convolutions of cuDNN: its own search among algorithms (`torch.backends.cudnn.benchmark`), and the memory layout.

Both are settings of the process or of the whole network. So tuning applies a point to the whole step, and only the case
here reads the choice at a launch. A signature is the shape of the input (NCHW), filters, kernel, stride, padding,
groups, dtype.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from viaduct.kernels.choices import Signature, find_choice
from viaduct.kernels.sizes import DTYPES
from viaduct.kernels.tunable.base import LaunchAndReference, Limits, RandomTensors, Tunable
from viaduct.search_space import Parameter, Point, Space

NAME = "library_convolution"
LAYOUTS = {"channels_last": torch.channels_last, "contiguous": torch.contiguous_format}
DEFAULT: Point = {"benchmark": False, "layout": "channels_last"}


def make_space(signature: Signature, limits: Limits) -> Space:
    return Space((Parameter("benchmark", (False, True)), Parameter("layout", tuple(LAYOUTS))), default=DEFAULT)


def prepare_case(random: RandomTensors, *sizes: int) -> LaunchAndReference:
    """Return the case of the forward pass and both gradients of a library convolution."""
    count, channels, height, width, filters, kernel, stride, padding, groups = sizes
    signature: Signature = (*sizes, DTYPES[random.dtype])
    x = random.draw_images(count, channels, height, width)
    weight = random.draw_images(filters, channels // groups, kernel, kernel) * 0.2
    out = [(size + 2 * padding - kernel) // stride + 1 for size in (height, width)]
    gradient = random.draw_images(count, filters, out[0], out[1])
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
        point = find_choice(NAME, signature) or DEFAULT
        before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = bool(point["benchmark"])
        try:
            return compute(by_layout[str(point["layout"])])
        finally:
            torch.backends.cudnn.benchmark = before

    return launch, lambda: compute([tensor.double() for tensor in tensors])


TUNABLES = [Tunable(NAME, make_space, prepare_case)]
