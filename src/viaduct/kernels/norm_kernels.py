"""Batch norm over rows of pixels and columns of channels: statistics, scale and shift, and the backward pass.

What gathers goes over the rows from the last to the first, all programs together; what follows it goes from the first
to the last. So each begins with what the one before has left in the card's cache.
"""

from __future__ import annotations

import triton
import triton.language as tl

from viaduct.kernels.moments_kernels import combine_parts, is_last_program, sum_parts


@triton.jit
def moments_kernel(
    x, means, squares, counts, tickets, weight, bias, running_mean, running_var, batches, made, rows, channels, epsilon,
    momentum, TRACK: tl.constexpr, PARTS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute the norm of x. Sums of a part are relative to one of its rows, so that nothing cancels."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    part = tl.program_id(1)
    parts = tl.num_programs(1)
    inside = column < channels
    tiles = tl.cdiv(rows, ROWS)
    home = (tiles - 1 - part).to(tl.int64) * ROWS * channels
    pivot = tl.load(x + home + column, mask=inside, other=0.0).to(tl.float32)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    square = tl.zeros((ROWS, COLUMNS), tl.float32)
    seen = 0
    offset = home + (tl.arange(0, ROWS)[:, None] * channels + column[None, :])
    for turn in range(part, tiles, parts):
        left = rows - (tiles - 1 - turn) * ROWS
        there = (tl.arange(0, ROWS) < left)[:, None] & inside[None, :]
        value = tl.load(x + offset, mask=there, other=0.0).to(tl.float32)
        apart = tl.where(there, value - pivot[None, :], 0.0)
        total += apart
        square += apart * apart
        seen += tl.minimum(left, ROWS)
        offset -= parts.to(tl.int64) * ROWS * channels
    count = seen.to(tl.float32)
    added = tl.sum(total, 0)
    mean = added / count
    tl.store(means + part * channels + column, mean + pivot, mask=inside)
    tl.store(squares + part * channels + column, tl.sum(square, 0) - added * mean, mask=inside)
    tl.store(counts + part, count)
    if is_last_program(tickets, parts):
        combine_parts(
            means, squares, counts, weight, bias, running_mean, running_var, batches, made, rows, channels, parts,
            epsilon, momentum, column, TRACK, PARTS, COLUMNS,
        )  # fmt: skip


@triton.jit
def scale_shift_kernel(
    x, other, y, signs, scale, shift, other_scale, other_shift, rows, channels,
    RELU: tl.constexpr, OTHER: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute relu(scale * x + shift + other); OTHER 1: as it is, 2: scaled and shifted. `signs`: a bit where y > 0."""
    across = tl.cdiv(channels, COLUMNS)
    block = tl.program_id(0) % across
    column = block * COLUMNS + tl.arange(0, COLUMNS)
    row = (tl.program_id(0) // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = column < channels
    there = (row < rows)[:, None] & inside[None, :]
    offset = row[:, None] * channels + column[None, :]
    a = tl.load(scale + column, mask=inside, other=0.0)
    b = tl.load(shift + column, mask=inside, other=0.0)
    value = tl.load(x + offset, mask=there, other=0.0).to(tl.float32) * a[None, :] + b[None, :]
    if OTHER > 0:
        added = tl.load(other + offset, mask=there, other=0.0).to(tl.float32)
        if OTHER == 2:
            c = tl.load(other_scale + column, mask=inside, other=0.0)
            d = tl.load(other_shift + column, mask=inside, other=0.0)
            added = added * c[None, :] + d[None, :]
        value += added
    if RELU:
        value = tl.maximum(value, 0.0)
    rounded = value.to(y.dtype.element_ty)
    tl.store(y + offset, rounded, mask=there)
    if OTHER > 0:
        bits = tl.reshape((rounded > 0).to(tl.int32), (ROWS, COLUMNS // 8, 8)) << tl.arange(0, 8)[None, None, :]
        byte = block * (COLUMNS // 8) + tl.arange(0, COLUMNS // 8)
        packed = tl.sum(bits, 2).to(tl.uint8)
        fits = (row < rows)[:, None] & (byte < channels // 8)[None, :]
        tl.store(signs + row[:, None] * (channels // 8) + byte[None, :], packed, mask=fits)


@triton.jit
def signs_of(signs, row, rows, channels, block, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the bits of a tile, as 0 and 1."""
    byte = block * (COLUMNS // 8) + tl.arange(0, COLUMNS // 8)
    fits = (row < rows)[:, None] & (byte < channels // 8)[None, :]
    packed = tl.load(signs + row[:, None] * (channels // 8) + byte[None, :], mask=fits, other=0).to(tl.int32)
    return tl.reshape((packed[:, :, None] >> tl.arange(0, 8)[None, None, :]) & 1, (ROWS, COLUMNS))


@triton.jit
def sums_kernel(
    gradient, x, signs, mean, inverse, scale, shift, table, made, tickets, masked, rows, channels,
    MASK: tl.constexpr, PARTS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Sum the gradient, and it times the normalised input. MASK 1: where scale * x + shift is above 0; 2: by `signs`,
    and the masked gradient is stored."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    part = tl.program_id(1)
    parts = tl.num_programs(1)
    inside = column < channels
    tiles = tl.cdiv(rows, ROWS)
    centre = tl.load(mean + column, mask=inside, other=0.0)
    a = tl.load(scale + column, mask=inside, other=0.0)
    b = tl.load(shift + column, mask=inside, other=0.0)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    product = tl.zeros((ROWS, COLUMNS), tl.float32)
    offset = (tiles - 1 - part).to(tl.int64) * ROWS * channels
    offset += tl.arange(0, ROWS)[:, None] * channels + column[None, :]
    for turn in range(part, tiles, parts):
        row = (tiles - 1 - turn).to(tl.int64) * ROWS + tl.arange(0, ROWS)
        there = (row < rows)[:, None] & inside[None, :]
        value = tl.load(x + offset, mask=there, other=0.0).to(tl.float32)
        change = tl.load(gradient + offset, mask=there, other=0.0).to(tl.float32)
        if MASK == 1:
            change = tl.where(value * a[None, :] + b[None, :] > 0, change, 0.0)
        if MASK == 2:
            change = tl.where(signs_of(signs, row, rows, channels, tl.program_id(0), ROWS, COLUMNS) > 0, change, 0.0)
            tl.store(masked + offset, change.to(masked.dtype.element_ty), mask=there)
        total += change
        product += change * (value - centre[None, :])
        offset -= parts.to(tl.int64) * ROWS * channels
    inv = tl.load(inverse + column, mask=inside, other=0.0)
    tl.store(table + part * channels + column, tl.sum(total, 0), mask=inside)
    tl.store(table + (parts + part) * channels + column, tl.sum(product, 0) * inv, mask=inside)
    if is_last_program(tickets, parts):
        sum_parts(table, made, channels, parts, column, PARTS, COLUMNS)


@triton.jit
def input_kernel(
    gradient, x, mean, inverse, scale, shift, sums, products, out, rows, channels,
    MASK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of the norm's input. MASK 1: the gradient counts where scale * x + shift is above 0."""
    across = tl.cdiv(channels, COLUMNS)
    block = tl.program_id(0) % across
    column = block * COLUMNS + tl.arange(0, COLUMNS)
    row = (tl.program_id(0) // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = column < channels
    there = (row < rows)[:, None] & inside[None, :]
    offset = row[:, None] * channels + column[None, :]
    a = tl.load(scale + column, mask=inside, other=0.0)
    value = tl.load(x + offset, mask=there, other=0.0).to(tl.float32)
    change = tl.load(gradient + offset, mask=there, other=0.0).to(tl.float32)
    if MASK == 1:
        b = tl.load(shift + column, mask=inside, other=0.0)
        change = tl.where(value * a[None, :] + b[None, :] > 0, change, 0.0)
    centre = tl.load(mean + column, mask=inside, other=0.0)
    inv = tl.load(inverse + column, mask=inside, other=0.0)
    steady = tl.load(sums + column, mask=inside, other=0.0) / rows
    slope = tl.load(products + column, mask=inside, other=0.0) / rows * inv
    result = (change - steady[None, :] - (value - centre[None, :]) * slope[None, :]) * a[None, :]
    tl.store(out + offset, result.to(out.dtype.element_ty), mask=there)


@triton.jit
def repeat_kernel(each, out, rows, channels, times, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Repeat every row of `each` so many times."""
    across = tl.cdiv(channels, COLUMNS)
    column = tl.program_id(0) % across * COLUMNS + tl.arange(0, COLUMNS)
    row = (tl.program_id(0) // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there = (row < rows)[:, None] & (column < channels)[None, :]
    value = tl.load(each + (row // times)[:, None] * channels + column[None, :], mask=there, other=0.0)
    tl.store(out + row[:, None] * channels + column[None, :], value.to(out.dtype.element_ty), mask=there)
