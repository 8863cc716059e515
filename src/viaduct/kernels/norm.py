"""Batch norm on the card by our own kernels: statistics, scale and shift with ReLU and shortcut, backward pass.

Everything here works on rows of pixels and columns of channels, which is how channels_last lies in memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from viaduct.kernels import moments_kernels, norm_kernels
from viaduct.kernels.sizes import blocks, gather_for, tickets, tile_for

PARTS, COLUMNS = 256, 16  # of tables that a kernel of its own adds up


@dataclass(frozen=True)
class Norm:
    """Statistics of one batch and what they make of a batch norm: y = scale * x + shift."""

    mean: Tensor
    inverse: Tensor
    scale: Tensor
    shift: Tensor


@dataclass(frozen=True)
class Parts:
    """Statistics of the columns in parts, as a kernel leaves them."""

    means: Tensor
    squares: Tensor
    counts: Tensor

    @staticmethod
    def empty(parts: int, channels: int, like: Tensor) -> Parts:
        table = torch.empty((2, parts, channels), dtype=torch.float32, device=like.device)
        return Parts(table[0], table[1], torch.empty(parts, dtype=torch.float32, device=like.device))


def rows_of(x_NCHW: Tensor) -> Tensor:
    """Return the same memory as [pixels, channels]."""
    return x_NCHW.permute(0, 2, 3, 1).reshape(-1, x_NCHW.shape[1])


def gradient_rows(gradient_NCHW: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the gradient of images as rows. Behind a mean over the pixels an image has the same row again and again,
    which torch is slow to write out."""
    count, channels, height, width = gradient_NCHW.shape
    if gradient_NCHW.stride()[2:] != (0, 0) or height * width == 1:
        return rows_of(gradient_NCHW.to(dtype).contiguous(memory_format=torch.channels_last))
    each = gradient_NCHW[:, :, 0, 0].contiguous()
    out = torch.empty((count * height * width, channels), dtype=dtype, device=each.device)
    tile = tile_for("repeat_rows", len(out), channels, dtype)
    norm_kernels.repeat_kernel[(blocks(len(out), tile.rows) * blocks(channels, tile.columns),)](
        *(each, out, len(out), channels, height * width, tile.rows, tile.columns), num_warps=tile.warps
    )
    return out


def images_like(rows: Tensor, like_NCHW: Tensor) -> Tensor:
    """Return rows as images of the size of others."""
    count, _, height, width = like_NCHW.shape
    return rows.view(count, height, width, rows.shape[1]).permute(0, 3, 1, 2)


def compute_norm(x: Tensor, layer: nn.BatchNorm2d) -> Norm:
    """Compute the norm of this batch and update the layer's running statistics."""
    rows, channels = x.shape
    cut = gather_for("batch_norm_statistics", x, 1)
    columns, parts = cut.programs(x)
    left = Parts.empty(parts, channels, x)
    made = torch.empty((4, channels), dtype=torch.float32, device=x.device)
    norm_kernels.moments_kernel[(columns, parts)](
        *(x, left.means, left.squares, left.counts, tickets(x), *list_statistics(layer, made), made, rows, channels),
        *(layer.eps, layer.momentum or 0.0, layer.running_mean is not None, cut.height, cut.height, cut.width),
        **cut.options,
    )
    return Norm(made[0], made[1], made[2], made[3])


def combine_parts(parts: Parts, rows: int, layer: nn.BatchNorm2d) -> Norm:
    """Compute the same from parts that another kernel has left."""
    count, channels = parts.means.shape
    made = torch.empty((4, channels), dtype=torch.float32, device=parts.means.device)
    moments_kernels.combine_parts_kernel[(blocks(channels, COLUMNS),)](
        *(parts.means, parts.squares, parts.counts, *list_statistics(layer, made), made, rows, channels, count),
        *(layer.eps, layer.momentum or 0.0, layer.running_mean is not None, PARTS, COLUMNS),
    )
    return Norm(made[0], made[1], made[2], made[3])


def list_statistics(layer: nn.BatchNorm2d, made: Tensor) -> tuple[Tensor, ...]:
    """Return a layer's weights and running statistics; where it has none of the latter, a tensor that is not used."""
    if layer.running_mean is None or layer.running_var is None or layer.num_batches_tracked is None:
        return layer.weight, layer.bias, made, made, made
    return layer.weight, layer.bias, layer.running_mean, layer.running_var, layer.num_batches_tracked


def apply_scale_shift(x: Tensor, norm: Norm, relu: bool = True) -> Tensor:
    """Return relu(scale * x + shift)."""
    y = torch.empty_like(x)
    _launch_scale_shift(x, norm, y, None, None, y, relu)
    return y


def apply_scale_shift_add(x: Tensor, norm: Norm, other: Tensor, other_norm: Norm | None) -> tuple[Tensor, Tensor]:
    """Return relu(scale * x + shift + other), `other` scaled by a norm of its own if it has one, and a bit where it is
    above 0."""
    y = torch.empty_like(x)
    signs = torch.empty((x.shape[0], x.shape[1] // 8), dtype=torch.uint8, device=x.device)
    _launch_scale_shift(x, norm, y, other, other_norm, signs, True)
    return y, signs


def _launch_scale_shift(
    x: Tensor, norm: Norm, y: Tensor, other: Tensor | None, own: Norm | None, signs: Tensor, relu: bool
) -> None:
    rows, channels = x.shape
    kind = 0 if other is None else 1 if own is None else 2
    tile = tile_for(("scale_shift", "scale_shift_add", "scale_shift_add_two")[kind], rows, channels, x.dtype)
    norm_kernels.scale_shift_kernel[(blocks(rows, tile.rows) * blocks(channels, tile.columns),)](
        *(x, x if other is None else other, y, signs, norm.scale, norm.shift),
        *((own or norm).scale, (own or norm).shift, rows, channels, relu, kind, tile.rows, tile.columns),
        num_warps=tile.warps,
    )


@dataclass(frozen=True)
class Sums:
    """Sums of the gradient at a norm's output, for each channel: the gradients of its bias and weight."""

    total: Tensor
    product: Tensor


def gradient_sums(gradient: Tensor, x: Tensor, norm: Norm, relu: bool = True) -> Sums:
    return _sums(gradient, x, norm, 1 if relu else 0, gradient, gradient)


def masked_gradient_sums(gradient: Tensor, x: Tensor, norm: Norm, signs: Tensor) -> tuple[Tensor, Sums]:
    """Return the gradient with 0 where the ReLU had 0, and its sums."""
    masked = torch.empty_like(gradient)
    return masked, _sums(gradient, x, norm, 2, signs, masked)


def _sums(gradient: Tensor, x: Tensor, norm: Norm, mask: int, signs: Tensor, masked: Tensor) -> Sums:
    rows, channels = x.shape
    cut = gather_for("batch_norm_gradient_sums", x, 2)
    columns, parts = cut.programs(x)
    table = torch.empty((2, parts, channels), dtype=torch.float32, device=x.device)
    made = torch.empty((2, channels), dtype=torch.float32, device=x.device)
    norm_kernels.sums_kernel[(columns, parts)](
        *(gradient, x, signs, norm.mean, norm.inverse, norm.scale, norm.shift, table, made, tickets(x), masked),
        *(rows, channels, mask, cut.height, cut.height, cut.width),
        **cut.options,
    )
    return Sums(made[0], made[1])


def sum_parts(table: Tensor) -> Sums:
    """Sum two tables of parts that another kernel has left."""
    _, parts, channels = table.shape
    made = torch.empty((2, channels), dtype=torch.float32, device=table.device)
    moments_kernels.sum_parts_kernel[(blocks(channels, COLUMNS),)](table, made, channels, parts, PARTS, COLUMNS)
    return Sums(made[0], made[1])


def input_gradient(gradient: Tensor, x: Tensor, norm: Norm, sums: Sums, relu: bool = False) -> Tensor:
    """Return the gradient of the norm's input; with relu, the given gradient has not been masked yet."""
    rows, channels = x.shape
    out = torch.empty_like(x)
    tile = tile_for("batch_norm_input_gradient", rows, channels, x.dtype)
    norm_kernels.input_kernel[(blocks(rows, tile.rows) * blocks(channels, tile.columns),)](
        *(gradient, x, norm.mean, norm.inverse, norm.scale, norm.shift, sums.total, sums.product, out),
        *(rows, channels, int(relu), tile.rows, tile.columns),
        num_warps=tile.warps,
    )
    return out
