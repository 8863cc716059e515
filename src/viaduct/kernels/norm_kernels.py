"""Batch norm over rows of pixels and columns of channels: statistics, scale and shift, and the backward pass.

Reductions read the rows from last to first, elementwise kernels from first to last: each kernel begins with the rows
that the previous one left in the L2 cache. Signs are bits, 1 where a value is above 0, eight channels to a byte.
"""

from __future__ import annotations

import triton
import triton.language as tl

from viaduct.kernels.moments_kernels import combine_parts, is_last_program, sum_parts


@triton.jit
def moments_kernel(
    x, means, squared_deviations, counts, tickets, weight, bias, running_mean, running_var, batches, output, rows,
    channels, epsilon, momentum, TRACK: tl.constexpr, PARTS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute the norm of x. Sums of a part are relative to one of its rows (`pivot`) to avoid cancellation."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    part = tl.program_id(1)
    parts = tl.num_programs(1)
    inside = column < channels
    tiles = tl.cdiv(rows, ROWS)
    base = (tiles - 1 - part).to(tl.int64) * ROWS * channels
    pivot = tl.load(x + base + column, mask=inside, other=0.0).to(tl.float32)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    square = tl.zeros((ROWS, COLUMNS), tl.float32)
    count_so_far = 0
    offset = base + (tl.arange(0, ROWS)[:, None] * channels + column[None, :])
    for tile in range(part, tiles, parts):
        remaining = rows - (tiles - 1 - tile) * ROWS
        in_bounds = (tl.arange(0, ROWS) < remaining)[:, None] & inside[None, :]
        value = tl.load(x + offset, mask=in_bounds, other=0.0).to(tl.float32)
        deviation = tl.where(in_bounds, value - pivot[None, :], 0.0)
        total += deviation
        square += deviation * deviation
        count_so_far += tl.minimum(remaining, ROWS)
        offset -= parts.to(tl.int64) * ROWS * channels
    count = count_so_far.to(tl.float32)
    deviation_sum = tl.sum(total, 0)
    mean = deviation_sum / count
    tl.store(means + part * channels + column, mean + pivot, mask=inside)
    tl.store(squared_deviations + part * channels + column, tl.sum(square, 0) - deviation_sum * mean, mask=inside)
    tl.store(counts + part, count)
    if is_last_program(tickets, parts):
        combine_parts(
            means, squared_deviations, counts, weight, bias, running_mean, running_var, batches, output, rows, channels,
            parts, epsilon, momentum, column, TRACK, PARTS, COLUMNS,
        )  # fmt: skip


@triton.jit
def scale_shift_kernel(
    x, other, y, signs, scale, shift, other_scale, other_shift, rows, channels,
    OTHER: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute y = relu(scale * x + shift + other) and the `signs` of y. OTHER 0: without other and signs; 1: other is
    added unchanged; 2: other is scaled and shifted."""
    column_tiles = tl.cdiv(channels, COLUMNS)
    block = tl.program_id(0) % column_tiles
    column = block * COLUMNS + tl.arange(0, COLUMNS)
    row = (tl.program_id(0) // column_tiles).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = column < channels
    in_bounds = (row < rows)[:, None] & inside[None, :]
    offset = row[:, None] * channels + column[None, :]
    scales = tl.load(scale + column, mask=inside, other=0.0)
    shifts = tl.load(shift + column, mask=inside, other=0.0)
    value = tl.load(x + offset, mask=in_bounds, other=0.0).to(tl.float32) * scales[None, :] + shifts[None, :]
    if OTHER > 0:
        addend = tl.load(other + offset, mask=in_bounds, other=0.0).to(tl.float32)
        if OTHER == 2:
            other_scales = tl.load(other_scale + column, mask=inside, other=0.0)
            other_shifts = tl.load(other_shift + column, mask=inside, other=0.0)
            addend = addend * other_scales[None, :] + other_shifts[None, :]
        value += addend
    value = tl.maximum(value, 0.0, propagate_nan=tl.PropagateNan.ALL)
    rounded = value.to(y.dtype.element_ty)
    tl.store(y + offset, rounded, mask=in_bounds)
    if OTHER > 0:
        bits = tl.reshape((rounded > 0).to(tl.int32), (ROWS, COLUMNS // 8, 8)) << tl.arange(0, 8)[None, None, :]
        byte = block * (COLUMNS // 8) + tl.arange(0, COLUMNS // 8)
        packed = tl.sum(bits, 2).to(tl.uint8)
        fits = (row < rows)[:, None] & (byte < channels // 8)[None, :]
        tl.store(signs + row[:, None] * (channels // 8) + byte[None, :], packed, mask=fits)


@triton.jit
def load_signs(signs, row, rows, channels, block, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the sign bits of a tile as 0 and 1."""
    byte = block * (COLUMNS // 8) + tl.arange(0, COLUMNS // 8)
    fits = (row < rows)[:, None] & (byte < channels // 8)[None, :]
    packed = tl.load(signs + row[:, None] * (channels // 8) + byte[None, :], mask=fits, other=0).to(tl.int32)
    return tl.reshape((packed[:, :, None] >> tl.arange(0, 8)[None, None, :]) & 1, (ROWS, COLUMNS))


@triton.jit
def sums_kernel(
    gradient, x, signs, mean, inverse_deviation, scale, shift, table, output, tickets, masked, rows, channels,
    MASK: tl.constexpr, PARTS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Sum the gradient, and the gradient times the normalised input. MASK 1: only where scale * x + shift is above 0;
    2: only where `signs` is set, and the masked gradient is stored."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    part = tl.program_id(1)
    parts = tl.num_programs(1)
    inside = column < channels
    tiles = tl.cdiv(rows, ROWS)
    mean_values = tl.load(mean + column, mask=inside, other=0.0)
    scales = tl.load(scale + column, mask=inside, other=0.0)
    shifts = tl.load(shift + column, mask=inside, other=0.0)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    product = tl.zeros((ROWS, COLUMNS), tl.float32)
    offset = (tiles - 1 - part).to(tl.int64) * ROWS * channels
    offset += tl.arange(0, ROWS)[:, None] * channels + column[None, :]
    for tile in range(part, tiles, parts):
        row = (tiles - 1 - tile).to(tl.int64) * ROWS + tl.arange(0, ROWS)
        in_bounds = (row < rows)[:, None] & inside[None, :]
        value = tl.load(x + offset, mask=in_bounds, other=0.0).to(tl.float32)
        gradient_values = tl.load(gradient + offset, mask=in_bounds, other=0.0).to(tl.float32)
        if MASK == 1:
            gradient_values = tl.where(value * scales[None, :] + shifts[None, :] > 0, gradient_values, 0.0)
        if MASK == 2:
            bits = load_signs(signs, row, rows, channels, tl.program_id(0), ROWS, COLUMNS)
            gradient_values = tl.where(bits > 0, gradient_values, 0.0)
            tl.store(masked + offset, gradient_values.to(masked.dtype.element_ty), mask=in_bounds)
        total += gradient_values
        product += gradient_values * (value - mean_values[None, :])
        offset -= parts.to(tl.int64) * ROWS * channels
    inverse_deviations = tl.load(inverse_deviation + column, mask=inside, other=0.0)
    tl.store(table + part * channels + column, tl.sum(total, 0), mask=inside)
    tl.store(table + (parts + part) * channels + column, tl.sum(product, 0) * inverse_deviations, mask=inside)
    if is_last_program(tickets, parts):
        sum_parts(table, output, channels, parts, column, PARTS, COLUMNS)


@triton.jit
def input_kernel(
    gradient, x, mean, inverse_deviation, scale, shift, sums, products, out, rows, channels,
    MASK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute the gradient w.r.t. the norm's input. MASK 1: the gradient counts where scale * x + shift is above 0."""
    column_tiles = tl.cdiv(channels, COLUMNS)
    block = tl.program_id(0) % column_tiles
    column = block * COLUMNS + tl.arange(0, COLUMNS)
    row = (tl.program_id(0) // column_tiles).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = column < channels
    in_bounds = (row < rows)[:, None] & inside[None, :]
    offset = row[:, None] * channels + column[None, :]
    scales = tl.load(scale + column, mask=inside, other=0.0)
    value = tl.load(x + offset, mask=in_bounds, other=0.0).to(tl.float32)
    gradient_values = tl.load(gradient + offset, mask=in_bounds, other=0.0).to(tl.float32)
    if MASK == 1:
        shifts = tl.load(shift + column, mask=inside, other=0.0)
        gradient_values = tl.where(value * scales[None, :] + shifts[None, :] > 0, gradient_values, 0.0)
    mean_values = tl.load(mean + column, mask=inside, other=0.0)
    inverse_deviations = tl.load(inverse_deviation + column, mask=inside, other=0.0)
    mean_gradient = tl.load(sums + column, mask=inside, other=0.0) / rows
    slope = tl.load(products + column, mask=inside, other=0.0) / rows * inverse_deviations
    centred = gradient_values - mean_gradient[None, :] - (value - mean_values[None, :]) * slope[None, :]
    result = centred * scales[None, :]
    tl.store(out + offset, result.to(out.dtype.element_ty), mask=in_bounds)


@triton.jit
def repeat_kernel(source, out, rows, channels, times, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Repeat every row of `source` `times` times."""
    column_tiles = tl.cdiv(channels, COLUMNS)
    column = tl.program_id(0) % column_tiles * COLUMNS + tl.arange(0, COLUMNS)
    row = (tl.program_id(0) // column_tiles).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    in_bounds = (row < rows)[:, None] & (column < channels)[None, :]
    value = tl.load(source + (row // times)[:, None] * channels + column[None, :], mask=in_bounds, other=0.0)
    tl.store(out + row[:, None] * channels + column[None, :], value.to(out.dtype.element_ty), mask=in_bounds)
