"""Bottleneck block as a single operation, forward and backward.

1x1 convolutions with stride 1 are matrix products in cuBLAS. Our kernels compute the other operations with few passes
over memory: the statistics of each batch norm; then scale, shift, ReLU and shortcut together. In the backward pass the
matrix product for the gradient w.r.t. the input also adds the gradient of the shortcut.
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
    compute_input_gradient,
    compute_norm,
    make_gradient_rows,
    mask_and_sum_gradient,
    sum_gradient,
    view_as_images_like,
    view_as_rows,
)
from viaduct.kernels.parts import BottleneckParts, Layer


@dataclass(frozen=True)
class Branch:
    """What the backward pass needs of a convolution and its batch norm."""

    x: Tensor  # output of the convolution and input of the norm, as rows
    norm: Norm  # of this batch
    weight: Tensor  # of the convolution, in the precision of computation


class BottleneckFunction(torch.autograd.Function):
    """Training pass of a bottleneck block."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, parts: BottleneckParts, weights: Weights, *parameters: Tensor) -> Tensor:
        x = x.to(weights[parts.conv1].dtype).contiguous(memory_format=torch.channels_last)
        branch1 = apply_pointwise(view_as_rows(x), parts.conv1, parts.norm1, weights)
        first = view_as_images_like(apply_scale_shift(branch1.x, branch1.norm), x)
        branch2, middle = apply_convolution(first, parts.conv2, parts.norm2, weights)
        second = apply_scale_shift(branch2.x, branch2.norm)
        branch3 = apply_pointwise(second, parts.conv3, parts.norm3, weights)
        projection = None if parts.projection is None else apply_projection(x, parts.projection, weights)
        other, other_norm = (view_as_rows(x), None) if projection is None else (projection.x, projection.norm)
        y, signs = apply_scale_shift_add(branch3.x, branch3.norm, other, other_norm)
        ctx.save_for_backward(x)  # so that torch detects a change of x before the backward pass
        ctx.parts, ctx.branches, ctx.saved = parts, (branch1, branch2, branch3, projection), (first, second, signs)
        return view_as_images_like(y, middle)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        if ctx.branches is None:
            raise RuntimeError("A block on kernels of viaduct has one backward pass; a second needs viaduct.unfuse.")
        (branch1, branch2, branch3, projection), (first, second, signs) = ctx.branches, ctx.saved
        gradient = make_gradient_rows(gradient, x.dtype)
        masked_gradient, sums3 = mask_and_sum_gradient(gradient, branch3.x, branch3.norm, signs)
        conv3_gradient = compute_input_gradient(masked_gradient, branch3.x, branch3.norm, sums3)
        weight3 = compute_weight_gradient(conv3_gradient, second)
        second_gradient = conv3_gradient @ branch3.weight
        sums2 = sum_gradient(second_gradient, branch2.x, branch2.norm)
        conv2_gradient = compute_input_gradient(second_gradient, branch2.x, branch2.norm, sums2, relu=True)
        first_gradient, weight2 = backpropagate_convolution(conv2_gradient, first, branch2, ctx.parts.conv2)
        sums1 = sum_gradient(first_gradient, branch1.x, branch1.norm)
        conv1_gradient = compute_input_gradient(first_gradient, branch1.x, branch1.norm, sums1, relu=True)
        layer_gradients = [
            (compute_weight_gradient(conv1_gradient, view_as_rows(x)), sums1),
            (weight2, sums2),
            (weight3, sums3),
        ]
        shortcut = masked_gradient
        if projection is not None:
            shortcut, weight, sums = backpropagate_projection(masked_gradient, x, projection, ctx.parts.projection)
            layer_gradients.append((weight, sums))
        # In place: the shortcut's gradient is not used again.
        x_gradient = shortcut.addmm_(conv1_gradient, branch1.weight)
        gradients = order_gradients(layer_gradients, ctx.parts)
        ctx.branches = ctx.saved = ctx.parts = None
        return view_as_images_like(x_gradient, x), None, None, *gradients


def order_gradients(layer_gradients: list[tuple[Tensor, Sums]], parts: BottleneckParts) -> list[Tensor]:
    """Return the gradients in the order, shape and dtype of `parts.parameters`.

    A norm's gradients are sums: `product` w.r.t. its weight, `total` w.r.t. its bias.
    """
    gradients = [tensor for weight, sums in layer_gradients for tensor in (weight, sums.product, sums.total)]
    pairs = zip(gradients, parts.parameters, strict=True)
    return [gradient.view(parameter.shape).to(parameter.dtype) for gradient, parameter in pairs]


def apply_pointwise(rows: Tensor, conv: nn.Conv2d, norm: nn.BatchNorm2d, weights: Weights) -> Branch:
    """Run a 1x1 convolution with stride 1 as a matrix product, and compute its norm."""
    weight = weights[conv].flatten(1)
    x = rows @ weight.t()
    return Branch(x, compute_norm(x, norm), weight)


def apply_convolution(x: Tensor, conv: nn.Conv2d, norm: nn.BatchNorm2d, weights: Weights) -> tuple[Branch, Tensor]:
    """Run a convolution on images and compute its norm; also return the convolution's output as images."""
    y = grouped.forward(x, weights[conv], conv)
    rows = view_as_rows(y)
    return Branch(rows, compute_norm(rows, norm), weights[conv]), y


def backpropagate_convolution(gradient: Tensor, x: Tensor, branch: Branch, conv: nn.Conv2d) -> tuple[Tensor, Tensor]:
    """Return the gradients w.r.t. input (as rows) and weight of a convolution."""
    x_gradient, weight = grouped.backward(gradient, x, branch.weight, conv)
    return view_as_rows(x_gradient), weight


def apply_projection(x: Tensor, layer: Layer, weights: Weights) -> Branch:
    """Run the 1x1 convolution of a shortcut, which may have a stride, and compute its norm."""
    conv, norm = layer
    if conv.stride == (1, 1):
        return apply_pointwise(view_as_rows(x), conv, norm, weights)
    return apply_convolution(x, conv, norm, weights)[0]


def backpropagate_projection(
    masked_gradient: Tensor, x: Tensor, projection: Branch, layer: Layer
) -> tuple[Tensor, Tensor, Sums]:
    """Return the gradients w.r.t. input and weight of a shortcut's convolution, and the sums for its norm."""
    conv, _ = layer
    sums = sum_gradient(masked_gradient, projection.x, projection.norm, relu=False)
    conv_gradient = compute_input_gradient(masked_gradient, projection.x, projection.norm, sums)
    if conv.stride == (1, 1):
        return conv_gradient @ projection.weight, compute_weight_gradient(conv_gradient, view_as_rows(x)), sums
    return *backpropagate_convolution(conv_gradient, x, projection, conv), sums


def compute_weight_gradient(gradient: Tensor, x: Tensor) -> Tensor:
    """Return gradient.T @ x, accumulated and returned in float32; on the CPU (in tests) in the inputs' dtype."""
    if gradient.is_cuda and gradient.dtype != torch.float32:
        return torch.mm(gradient.t(), x, out_dtype=torch.float32)
    return gradient.t() @ x
