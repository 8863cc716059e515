"""A bottleneck block as one operation, forward and backward, over the kernels beside this file.

1x1 convolutions are products of matrices, which the library does best. Around them stand our own passes over the
numbers: a batch norm's statistics; its line, ReLU and shortcut in one; and on the way back as few as there can be. The
gradient of the shortcut is added by the product that makes the rest of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from viaduct.kernels import grouped
from viaduct.kernels.norm import (
    Norm,
    Sums,
    gradient_rows,
    gradient_sums,
    input_gradient,
    line,
    line_and_shortcut,
    masked_gradient_sums,
    norm_of,
    picture_of,
    rows_of,
)

Weights = dict[nn.Conv2d, Tensor]  # of convolutions, in the precision of computation


@dataclass(frozen=True)
class Branch:
    """A convolution and its norm, and what they made of this batch."""

    x: Tensor  # the norm's input, as rows
    norm: Norm
    weight: Tensor


class BottleneckFunction(torch.autograd.Function):
    """block(x) for a block with conv1, norm1, conv2, norm2, conv3, norm3 and a shortcut."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, block: Any, weights: Weights, *parameters: Tensor) -> Tensor:
        x = x.to(weights[block.conv1].dtype).contiguous(memory_format=torch.channels_last)
        one = pointed(rows_of(x), block.conv1, block.norm1, weights)
        first = picture_of(line(one.x, one.norm), x)
        two, middle = convolved(first, block.conv2, block.norm2, weights)
        second = line(two.x, two.norm)
        three = pointed(second, block.conv3, block.norm3, weights)
        side = None if isinstance(block.shortcut, nn.Identity) else projected(x, block.shortcut, weights)
        other, other_norm = (rows_of(x), None) if side is None else (side.x, side.norm)
        y, signs = line_and_shortcut(three.x, three.norm, other, other_norm)
        ctx.block, ctx.branches, ctx.seen = block, (one, two, three, side), (x, first, second, signs)
        return picture_of(y, middle)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (one, two, three, side), (x, first, second, signs) = ctx.branches, ctx.seen
        gradient = gradient_rows(gradient, x.dtype)
        change, sums3 = masked_gradient_sums(gradient, three.x, three.norm, signs)
        at3 = input_gradient(change, three.x, three.norm, sums3)
        weight3 = weight_gradient(at3, second)
        change2 = at3 @ three.weight
        sums2 = gradient_sums(change2, two.x, two.norm)
        at2 = input_gradient(change2, two.x, two.norm, sums2, relu=True)
        change1, weight2 = convolved_backward(at2, first, two, ctx.block.conv2)
        sums1 = gradient_sums(change1, one.x, one.norm)
        at1 = input_gradient(change1, one.x, one.norm, sums1, relu=True)
        made = [(weight_gradient(at1, rows_of(x)), sums1), (weight2, sums2), (weight3, sums3)]
        shortcut = change
        if side is not None:
            shortcut, weight, sums = projected_backward(change, x, side, ctx.block.shortcut)
            made.append((weight, sums))
        result = shortcut.addmm_(at1, one.weight)  # in place: nobody else holds it, and a copy would cost a pass
        gradients = flat(made, ctx.block)
        ctx.branches = ctx.seen = ctx.block = None
        return picture_of(result, x), None, None, *gradients


def layers_of(block: Any) -> list[tuple[nn.Conv2d, nn.BatchNorm2d]]:
    layers = [(block.conv1, block.norm1), (block.conv2, block.norm2), (block.conv3, block.norm3)]
    projected = [] if isinstance(block.shortcut, nn.Identity) else [(block.shortcut.conv, block.shortcut.norm)]
    return [*layers, *projected]


def parameters_of(block: Any) -> list[Tensor]:
    return [tensor for conv, norm in layers_of(block) for tensor in (conv.weight, norm.weight, norm.bias)]


def flat(made: list[tuple[Tensor, Sums]], block: Any) -> list[Tensor]:
    """Gradients in the order and precision of `parameters_of`."""
    gradients = [tensor for weight, sums in made for tensor in (weight, sums.product, sums.total)]
    wanted = parameters_of(block)
    return [gradient.view(like.shape).to(like.dtype) for gradient, like in zip(gradients, wanted, strict=True)]


def pointed(rows: Tensor, conv: nn.Conv2d, layer: nn.BatchNorm2d, weights: Weights) -> Branch:
    weight = weights[conv].flatten(1)
    x = rows @ weight.t()
    return Branch(x, norm_of(x, layer), weight)


def convolved(x: Tensor, conv: nn.Conv2d, layer: nn.BatchNorm2d, weights: Weights) -> tuple[Branch, Tensor]:
    y = grouped.forward(x, weights[conv], conv)
    rows = rows_of(y)
    return Branch(rows, norm_of(rows, layer), weights[conv]), y


def convolved_backward(gradient: Tensor, x: Tensor, branch: Branch, conv: nn.Conv2d) -> tuple[Tensor, Tensor]:
    made, weight = grouped.backward(gradient, x, branch.weight, conv)
    return rows_of(made), weight


def projected(x: Tensor, shortcut: Any, weights: Weights) -> Branch:
    if shortcut.conv.stride == (1, 1):
        return pointed(rows_of(x), shortcut.conv, shortcut.norm, weights)
    return convolved(x, shortcut.conv, shortcut.norm, weights)[0]


def projected_backward(change: Tensor, x: Tensor, side: Branch, shortcut: Any) -> tuple[Tensor, Tensor, Sums]:
    sums = gradient_sums(change, side.x, side.norm, relu=False)
    at = input_gradient(change, side.x, side.norm, sums)
    if shortcut.conv.stride == (1, 1):
        return at @ side.weight, weight_gradient(at, rows_of(x)), sums
    return *convolved_backward(at, x, side, shortcut.conv), sums


def weight_gradient(gradient: Tensor, x: Tensor) -> Tensor:
    """gradient.T @ x, added up in float32 and not rounded after."""
    if gradient.is_cuda and gradient.dtype != torch.float32:
        return torch.mm(gradient.t(), x, out_dtype=torch.float32)
    return gradient.t() @ x
