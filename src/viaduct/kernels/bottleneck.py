"""A bottleneck block as a single operation, forward and backward, over the kernels beside this file.

1x1 convolutions are products of matrices, which the library does best. Around them are our own passes over the
numbers: a batch norm's statistics; scale, shift, ReLU and shortcut together; as few as possible in the backward pass.
The gradient of the shortcut is added by the matrix product that computes the remaining gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from viaduct.kernels import grouped
from viaduct.kernels.copies import Weights
from viaduct.kernels.norm import (
    Norm,
    Sums,
    apply_scale_shift,
    apply_scale_shift_add,
    compute_norm,
    gradient_rows,
    gradient_sums,
    images_like,
    input_gradient,
    masked_gradient_sums,
    rows_of,
)
from viaduct.kernels.parts import BottleneckParts, Layer


@dataclass(frozen=True)
class Branch:
    """A convolution and its norm, and what they computed for this batch."""

    x: Tensor  # the norm's input, as rows
    norm: Norm
    weight: Tensor


class BottleneckFunction(torch.autograd.Function):
    """A training pass of a block of such parts."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, parts: BottleneckParts, weights: Weights, *parameters: Tensor) -> Tensor:
        x = x.to(weights[parts.conv1].dtype).contiguous(memory_format=torch.channels_last)
        branch1 = apply_pointwise(rows_of(x), parts.conv1, parts.norm1, weights)
        first = images_like(apply_scale_shift(branch1.x, branch1.norm), x)
        branch2, middle = apply_convolution(first, parts.conv2, parts.norm2, weights)
        second = apply_scale_shift(branch2.x, branch2.norm)
        branch3 = apply_pointwise(second, parts.conv3, parts.norm3, weights)
        side = None if parts.projection is None else apply_projection(x, parts.projection, weights)
        other, other_norm = (rows_of(x), None) if side is None else (side.x, side.norm)
        y, signs = apply_scale_shift_add(branch3.x, branch3.norm, other, other_norm)
        ctx.save_for_backward(x)  # torch sees whether someone has changed it until then
        ctx.parts, ctx.branches, ctx.seen = parts, (branch1, branch2, branch3, side), (first, second, signs)
        return images_like(y, middle)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        if ctx.branches is None:
            raise RuntimeError("A block on kernels of viaduct has one backward pass; a second needs viaduct.unfuse.")
        (branch1, branch2, branch3, side), (first, second, signs) = ctx.branches, ctx.seen
        gradient = gradient_rows(gradient, x.dtype)
        change, sums3 = masked_gradient_sums(gradient, branch3.x, branch3.norm, signs)
        at3 = input_gradient(change, branch3.x, branch3.norm, sums3)
        weight3 = weight_gradient(at3, second)
        change2 = at3 @ branch3.weight
        sums2 = gradient_sums(change2, branch2.x, branch2.norm)
        at2 = input_gradient(change2, branch2.x, branch2.norm, sums2, relu=True)
        change1, weight2 = backpropagate_convolution(at2, first, branch2, ctx.parts.conv2)
        sums1 = gradient_sums(change1, branch1.x, branch1.norm)
        at1 = input_gradient(change1, branch1.x, branch1.norm, sums1, relu=True)
        made = [(weight_gradient(at1, rows_of(x)), sums1), (weight2, sums2), (weight3, sums3)]
        shortcut = change
        if side is not None:
            shortcut, weight, sums = backpropagate_projection(change, x, side, ctx.parts.projection)
            made.append((weight, sums))
        result = shortcut.addmm_(
            at1, branch1.weight
        )  # in place: nothing else refers to it, and a copy would cost a pass
        gradients = order_gradients(made, ctx.parts)
        ctx.branches = ctx.seen = ctx.parts = None
        return images_like(result, x), None, None, *gradients


def order_gradients(made: list[tuple[Tensor, Sums]], parts: BottleneckParts) -> list[Tensor]:
    """Return gradients in the order and precision of `parts.parameters`."""
    gradients = [tensor for weight, sums in made for tensor in (weight, sums.product, sums.total)]
    return [
        gradient.view(like.shape).to(like.dtype) for gradient, like in zip(gradients, parts.parameters, strict=True)
    ]


def apply_pointwise(rows: Tensor, conv: nn.Conv2d, layer: nn.BatchNorm2d, weights: Weights) -> Branch:
    weight = weights[conv].flatten(1)
    x = rows @ weight.t()
    return Branch(x, compute_norm(x, layer), weight)


def apply_convolution(x: Tensor, conv: nn.Conv2d, layer: nn.BatchNorm2d, weights: Weights) -> tuple[Branch, Tensor]:
    y = grouped.forward(x, weights[conv], conv)
    rows = rows_of(y)
    return Branch(rows, compute_norm(rows, layer), weights[conv]), y


def backpropagate_convolution(gradient: Tensor, x: Tensor, branch: Branch, conv: nn.Conv2d) -> tuple[Tensor, Tensor]:
    made, weight = grouped.backward(gradient, x, branch.weight, conv)
    return rows_of(made), weight


def apply_projection(x: Tensor, layer: Layer, weights: Weights) -> Branch:
    conv, norm = layer
    if conv.stride == (1, 1):
        return apply_pointwise(rows_of(x), conv, norm, weights)
    return apply_convolution(x, conv, norm, weights)[0]


def backpropagate_projection(change: Tensor, x: Tensor, side: Branch, layer: Layer) -> tuple[Tensor, Tensor, Sums]:
    conv, _ = layer
    sums = gradient_sums(change, side.x, side.norm, relu=False)
    at = input_gradient(change, side.x, side.norm, sums)
    if conv.stride == (1, 1):
        return at @ side.weight, weight_gradient(at, rows_of(x)), sums
    return *backpropagate_convolution(at, x, side, conv), sums


def weight_gradient(gradient: Tensor, x: Tensor) -> Tensor:
    """Return gradient.T @ x, summed in float32 and not rounded."""
    if gradient.is_cuda and gradient.dtype != torch.float32:
        return torch.mm(gradient.t(), x, out_dtype=torch.float32)
    return gradient.t() @ x
