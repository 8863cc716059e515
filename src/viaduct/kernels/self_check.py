"""Check that a block computes a bottleneck of its layers: a copy on the CPU in float64 is compared with a reference.

A block that is recognised by the names of its layers could combine them in any way. So a deep copy with random weights
takes one training pass, forward and backward. Outputs, gradients and running statistics must be those of a bottleneck,
and the pass must neither draw random numbers nor set attributes of the block. The block itself, its statistics and the
random states of the process do not change.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from viaduct.devices.base import summarise_error
from viaduct.kernels.parts import BottleneckParts, Layer, read_parts
from viaduct.models.resnet import Bottleneck
from viaduct.random_states import keep_random_states, read_random_states

MAX_ERROR = 1e-9  # relative, in float64
COUNT, HEIGHT, WIDTH = 2, 6, 5  # number and size of the images
SEED = 20260118


def check_block(module: nn.Module) -> BottleneckParts | str | None:
    """Return a block's parts if our kernels support it, else the reason; None for a module that is not a block."""
    parts = read_parts(module)
    if not isinstance(parts, BottleneckParts) or type(module).forward is Bottleneck.forward:
        return parts
    return find_deviation(module) or parts


def find_deviation(block: nn.Module) -> str | None:
    """Return the difference of a block from a bottleneck of its layers, as a sentence, or None."""
    try:
        no_autocast = torch.autocast("cpu", enabled=False)
        with keep_random_states(), torch.inference_mode(False), torch.enable_grad(), no_autocast:
            return compare_with_reference(block)
    except Exception as error:  # the block's own code may raise anything on a small input
        return f"its forward pass cannot be checked ({summarise_error(error)})"


def compare_with_reference(block: nn.Module) -> str | None:
    """Return the difference as `find_deviation` does; an error of the block's own code is raised."""
    trial = copy.deepcopy(block).to("cpu", torch.float64).train()
    draw_weights(trial)
    reference = copy.deepcopy(trial)
    parts, reference_parts = read_parts(trial), read_parts(reference)
    assert isinstance(parts, BottleneckParts)
    assert isinstance(reference_parts, BottleneckParts)
    generator = torch.Generator("cpu").manual_seed(SEED)
    x = draw((COUNT, parts.conv1.in_channels, HEIGHT, WIDTH), generator)
    trial_x, reference_x = x.clone().requires_grad_(), x.clone().requires_grad_()
    states, attributes = read_random_states(), dict(vars(trial))
    output = trial.forward(trial_x * 1.0)  # not a leaf tensor, since a block may work in place; without hooks
    if read_random_states() != states:
        return "it draws random numbers in training"
    # `trial` as the default is no attribute's value, so that a new attribute counts as changed.
    if changed := [name for name, value in vars(trial).items() if attributes.get(name, trial) is not value]:
        return f"a pass changes its attribute {changed[0]}"
    expected = compute_bottleneck(reference_parts, reference_x * 1.0)
    if not isinstance(output, Tensor) or output.shape != expected.shape:
        return "it does not compute what a bottleneck of its layers does"
    gradient = draw(tuple(expected.shape), generator)
    torch.autograd.backward([output, expected], [gradient, gradient])
    pairs: list[tuple[Any, Any]] = [(output, expected), (trial_x.grad, reference_x.grad)]
    parameters = zip(parts.parameters, reference_parts.parameters, strict=True)
    pairs += [(actual.grad, expected.grad) for actual, expected in parameters]
    pairs += list(zip(trial.buffers(), reference.buffers(), strict=True))
    if not all(are_close(actual, expected) for actual, expected in pairs):
        return "it does not compute what a bottleneck of its layers does"
    return None


def compute_bottleneck(parts: BottleneckParts, x: Tensor) -> Tensor:
    """Compute a bottleneck with PyTorch's operations."""
    (first, second, third), projection = parts.layers[:3], parts.projection
    branch = compute_layer(F.relu(compute_layer(F.relu(compute_layer(x, first)), second)), third)
    return F.relu(branch + (x if projection is None else compute_layer(x, projection)))


def compute_layer(x: Tensor, layer: Layer) -> Tensor:
    """Convolve and normalise, without the activation inside timm's norms."""
    conv, norm = layer
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked += 1
    assert norm.momentum is not None
    statistics = (norm.running_mean, norm.running_var)
    return F.batch_norm(conv(x), *statistics, norm.weight, norm.bias, True, norm.momentum, norm.eps)


def draw(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")


@torch.no_grad()
def draw_weights(block: nn.Module) -> None:
    """Give all parameters random values, because a norm with weight 0 would hide the layers before it."""
    generator = torch.Generator("cpu").manual_seed(SEED + 1)
    for parameter in block.parameters():
        parameter.requires_grad_()
        scale = 1 / math.sqrt(max(parameter[0].numel(), 1)) if parameter.ndim > 1 else 1.0
        parameter.copy_(draw(tuple(parameter.shape), generator) * scale)


def are_close(actual: Tensor | None, expected: Tensor | None) -> bool:
    if actual is None or expected is None:
        return actual is expected
    difference = (actual.double() - expected.double()).norm()
    return bool(difference <= MAX_ERROR * expected.double().norm() + 1e-12)  # 1e-12: if zeros are expected
