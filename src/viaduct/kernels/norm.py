"""Batch norm on our kernels: statistics, scale and shift with ReLU and shortcut, backward pass.

Tensors are rows of pixels and columns of channels, which is the memory layout of channels_last.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from viaduct.kernels import moments_kernels, norm_kernels
from viaduct.kernels.sizes import count_blocks, find_reduction_sizes, find_tile, get_tickets

PARTS, COLUMNS = 256, 16  # number of parts and channels that a combining kernel reads at once


@dataclass(frozen=True)
class Norm:
    """Statistics of one batch, and the batch norm as y = scale * x + shift."""

    mean: Tensor
    inverse_deviation: Tensor  # 1 / standard deviation
    scale: Tensor
    shift: Tensor


@dataclass(frozen=True)
class Parts:
    """Partial statistics of the channels; each program of a kernel computes one part, from some of the rows."""

    means: Tensor  # [parts, channels]
    squared_deviations: Tensor  # [parts, channels]: sums of squared deviations from the part's mean
    counts: Tensor  # [parts]: number of rows

    @staticmethod
    def empty(parts: int, channels: int, like: Tensor) -> Parts:
        """Return uninitialised parts on the device of `like`."""
        table = torch.empty((2, parts, channels), dtype=torch.float32, device=like.device)
        return Parts(table[0], table[1], torch.empty(parts, dtype=torch.float32, device=like.device))


def view_as_rows(x_NCHW: Tensor) -> Tensor:
    """Return channels_last images as [pixels, channels], without a copy."""
    return x_NCHW.permute(0, 2, 3, 1).reshape(-1, x_NCHW.shape[1])


def make_gradient_rows(gradient_NCHW: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the gradient of images as rows.

    The gradient of a mean over the pixels has stride 0, which torch is slow to copy; our kernel repeats its rows.
    """
    count, channels, height, width = gradient_NCHW.shape
    if gradient_NCHW.stride()[2:] != (0, 0) or height * width == 1:
        return view_as_rows(gradient_NCHW.to(dtype).contiguous(memory_format=torch.channels_last))
    image_gradients = gradient_NCHW[:, :, 0, 0].contiguous()
    out = torch.empty((count * height * width, channels), dtype=dtype, device=image_gradients.device)
    tile = find_tile("repeat_rows", len(out), channels, dtype)
    norm_kernels.repeat_kernel[(count_blocks(len(out), tile.rows) * count_blocks(channels, tile.columns),)](
        *(image_gradients, out, len(out), channels, height * width, tile.rows, tile.columns), num_warps=tile.warps
    )
    return out


def view_as_images_like(rows: Tensor, like_NCHW: Tensor) -> Tensor:
    """Return rows as images with the height and width of `like_NCHW`."""
    count, _, height, width = like_NCHW.shape
    return rows.view(count, height, width, rows.shape[1]).permute(0, 3, 1, 2)


def compute_norm(x: Tensor, layer: nn.BatchNorm2d) -> Norm:
    """Compute the norm of this batch and update the layer's running statistics."""
    rows, channels = x.shape
    sizes = find_reduction_sizes("batch_norm_statistics", x, 1)
    columns, parts = sizes.count_programs(x)
    table = Parts.empty(parts, channels, x)
    output = torch.empty((4, channels), dtype=torch.float32, device=x.device)
    norm_kernels.moments_kernel[(columns, parts)](
        *(x, table.means, table.squared_deviations, table.counts, get_tickets(x), *list_statistics(layer, output)),
        *(output, rows, channels),
        *(layer.eps, layer.momentum or 0.0, layer.running_mean is not None, sizes.height, sizes.height, sizes.width),
        **sizes.options,
    )
    return Norm(output[0], output[1], output[2], output[3])


def combine_parts(table: Parts, rows: int, layer: nn.BatchNorm2d) -> Norm:
    """Compute the norm from partial statistics that another kernel has written; update the running statistics."""
    parts, channels = table.means.shape
    output = torch.empty((4, channels), dtype=torch.float32, device=table.means.device)
    moments_kernels.combine_parts_kernel[(count_blocks(channels, COLUMNS),)](
        *(table.means, table.squared_deviations, table.counts, *list_statistics(layer, output), output),
        *(rows, channels, parts),
        *(layer.eps, layer.momentum or 0.0, layer.running_mean is not None, PARTS, COLUMNS),
    )
    return Norm(output[0], output[1], output[2], output[3])


def list_statistics(layer: nn.BatchNorm2d, output: Tensor) -> tuple[Tensor, ...]:
    """Return a layer's weight, bias and running statistics; `output` replaces missing running statistics."""
    if layer.running_mean is None or layer.running_var is None or layer.num_batches_tracked is None:
        return layer.weight, layer.bias, output, output, output
    return layer.weight, layer.bias, layer.running_mean, layer.running_var, layer.num_batches_tracked


def apply_scale_shift(x: Tensor, norm: Norm) -> Tensor:
    """Return relu(scale * x + shift)."""
    y = torch.empty_like(x)
    _launch_scale_shift(x, norm, y, other=None, other_norm=None, signs=y)  # the kernel needs a tensor; it writes none
    return y


def apply_scale_shift_add(x: Tensor, norm: Norm, other: Tensor, other_norm: Norm | None) -> tuple[Tensor, Tensor]:
    """Return relu(scale * x + shift + other) and its signs, a bit for each element above 0.

    `other` is scaled and shifted by `other_norm` if there is one.
    """
    y = torch.empty_like(x)
    signs = torch.empty((x.shape[0], x.shape[1] // 8), dtype=torch.uint8, device=x.device)
    _launch_scale_shift(x, norm, y, other, other_norm, signs)
    return y, signs


def _launch_scale_shift(
    x: Tensor, norm: Norm, y: Tensor, other: Tensor | None, other_norm: Norm | None, signs: Tensor
) -> None:
    """Write relu(scale * x + shift + other) to y; without `other` no signs are written."""
    rows, channels = x.shape
    kind = 0 if other is None else 1 if other_norm is None else 2  # the kernel's OTHER
    tile = find_tile(("scale_shift", "scale_shift_add", "scale_shift_add_two")[kind], rows, channels, x.dtype)
    norm_kernels.scale_shift_kernel[(count_blocks(rows, tile.rows) * count_blocks(channels, tile.columns),)](
        *(x, x if other is None else other, y, signs, norm.scale, norm.shift),
        *((other_norm or norm).scale, (other_norm or norm).shift, rows, channels, kind, tile.rows, tile.columns),
        num_warps=tile.warps,
    )


@dataclass(frozen=True)
class Sums:
    """Sums of the output's gradient, and of its product with the normalised input, for each channel."""

    total: Tensor  # of the gradient; this is the gradient w.r.t. bias
    product: Tensor  # of the products; this is the gradient w.r.t. weight


def sum_gradient(gradient: Tensor, x: Tensor, norm: Norm, relu: bool = True) -> Sums:
    """Return the sums of the gradient; with relu, of its part where scale * x + shift is above 0."""
    # The kernel needs tensors for signs and masked gradient, but does not use them here.
    return _launch_sums(gradient, x, norm, 1 if relu else 0, signs=gradient, masked=gradient)


def mask_and_sum_gradient(gradient: Tensor, x: Tensor, norm: Norm, signs: Tensor) -> tuple[Tensor, Sums]:
    """Return the gradient, set to 0 where the ReLU's output was 0, and its sums."""
    masked = torch.empty_like(gradient)
    return masked, _launch_sums(gradient, x, norm, 2, signs, masked)


def _launch_sums(gradient: Tensor, x: Tensor, norm: Norm, mask: int, signs: Tensor, masked: Tensor) -> Sums:
    """Return the sums; `mask` is the kernel's MASK. `signs` and `masked` are used only with 2."""
    rows, channels = x.shape
    sizes = find_reduction_sizes("batch_norm_gradient_sums", x, 2)
    columns, parts = sizes.count_programs(x)
    table = torch.empty((2, parts, channels), dtype=torch.float32, device=x.device)
    output = torch.empty((2, channels), dtype=torch.float32, device=x.device)
    norm_kernels.sums_kernel[(columns, parts)](
        *(gradient, x, signs, norm.mean, norm.inverse_deviation, norm.scale, norm.shift),
        *(table, output, get_tickets(x), masked),
        *(rows, channels, mask, sizes.height, sizes.height, sizes.width),
        **sizes.options,
    )
    return Sums(output[0], output[1])


def sum_parts(table: Tensor) -> Sums:
    """Return the sums from a table of partial sums that another kernel has written."""
    _, parts, channels = table.shape
    output = torch.empty((2, channels), dtype=torch.float32, device=table.device)
    moments_kernels.sum_parts_kernel[(count_blocks(channels, COLUMNS),)](table, output, channels, parts, PARTS, COLUMNS)
    return Sums(output[0], output[1])


def compute_input_gradient(gradient: Tensor, x: Tensor, norm: Norm, sums: Sums, relu: bool = False) -> Tensor:
    """Return the gradient w.r.t. the norm's input; with relu, the ReLU's mask is applied to the gradient first."""
    rows, channels = x.shape
    out = torch.empty_like(x)
    tile = find_tile("batch_norm_input_gradient", rows, channels, x.dtype)
    norm_kernels.input_kernel[(count_blocks(rows, tile.rows) * count_blocks(channels, tile.columns),)](
        *(gradient, x, norm.mean, norm.inverse_deviation, norm.scale, norm.shift, sums.total, sums.product, out),
        *(rows, channels, int(relu), tile.rows, tile.columns),
        num_warps=tile.warps,
    )
    return out
