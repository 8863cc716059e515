"""Choice between our kernels ("own") and cuDNN ("library") for each direction of grouped 3x3 convolutions.

Directions are the forward pass and the gradients w.r.t. input and weight. The cases of the gradients run the complete
backward pass; only the tuned direction changes its implementation.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from viaduct.kernels import grouped
from viaduct.kernels.choices import Signature
from viaduct.kernels.norm import view_as_rows
from viaduct.kernels.tunable.base import LaunchAndReference, Limits, RandomTensors, Tunable, read_sizes
from viaduct.models.padding import SameConv2d
from viaduct.search_space import Parameter, Space


def make_space(direction: str, signature: Signature, limits: Limits) -> Space:
    """Return the space of the two implementations; the default is the one that was faster on an H200."""
    count, height, width, _, per_group, stride, *_ = read_sizes(signature)
    library = stride == 1 and grouped.is_library_faster(direction, per_group, count * height * width)
    default = {"implementation": "library" if library else "own"}
    return Space((Parameter("implementation", ("own", "library")),), default=default)


def prepare_case(direction: str, random: RandomTensors, *sizes: int) -> LaunchAndReference:
    """Return the case of a direction; `same` is 1 for TensorFlow's SAME padding, else `padding` counts."""
    count, height, width, channels, per_group, stride, same, padding = sizes
    groups = channels // per_group
    conv: nn.Conv2d = SameConv2d(channels, channels, 3, stride, groups)
    if not same:
        conv = nn.Conv2d(channels, channels, 3, stride, padding, groups=groups, bias=False)
    weight, x = random.draw_images(channels, per_group, 3, 3) * 0.2, random.draw_images(count, channels, height, width)
    (top, bottom), (left, right) = grouped.find_paddings(x, conv)
    gradient = random.draw_images(count, channels, *grouped.compute_output_size(x, conv))

    def compute() -> list[Tensor]:
        inputs = x.double().requires_grad_(), weight.double().requires_grad_()
        y = F.conv2d(F.pad(inputs[0], (left, right, top, bottom)), inputs[1], stride=stride, groups=groups)
        return [y] if direction == "forward" else list(torch.autograd.grad(y, inputs, gradient.double()))

    def launch() -> list[Tensor]:
        if direction == "forward":
            return [grouped.forward(x, weight, conv)]
        return list(grouped.backward(view_as_rows(gradient), x, weight, conv))

    return launch, compute


TUNABLES = [
    Tunable(f"grouped_{direction}_implementation", partial(make_space, direction), partial(prepare_case, direction))
    for direction in ("forward", "input", "weight")
]
