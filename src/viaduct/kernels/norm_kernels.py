"""Batch norm over rows of pixels and columns of channels: statistics, the line itself, and the way back."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def moments_kernel(x, means, squares, counts, rows, channels, share, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Mean and squared deviations of `share` rows. Sums run relative to the first row, so that nothing cancels."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    part = tl.program_id(1)
    inside = column < channels
    first = part * share
    last = tl.minimum(first + share, rows)
    pivot = tl.load(x + first.to(tl.int64) * channels + column, mask=inside & (first < rows), other=0.0).to(tl.float32)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    square = tl.zeros((ROWS, COLUMNS), tl.float32)
    place = first.to(tl.int64) * channels + (tl.arange(0, ROWS)[:, None] * channels + column[None, :])
    for row in range(first, last, ROWS):
        there = ((row + tl.arange(0, ROWS)) < last)[:, None] & inside[None, :]
        value = tl.load(x + place, mask=there, other=0.0).to(tl.float32)
        apart = tl.where(there, value - pivot[None, :], 0.0)
        total += apart
        square += apart * apart
        place += ROWS * channels
    count = tl.maximum(last - first, 0).to(tl.float32)
    added = tl.sum(total, 0)
    mean = added / tl.maximum(count, 1.0)
    tl.store(means + part * channels + column, mean + pivot, mask=inside)
    tl.store(squares + part * channels + column, tl.sum(square, 0) - added * mean, mask=inside)
    tl.store(counts + part, count)


@triton.jit
def line_kernel(
    x, other, y, signs, scale, shift, other_scale, other_shift, rows, channels,
    RELU: tl.constexpr, OTHER: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """y = relu(scale * x + shift + other); OTHER 1: as it is, 2: a line of its own. `signs`: a bit where y > 0."""
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = column < channels
    there = (row < rows)[:, None] & inside[None, :]
    place = row[:, None] * channels + column[None, :]
    a = tl.load(scale + column, mask=inside, other=0.0)
    b = tl.load(shift + column, mask=inside, other=0.0)
    value = tl.load(x + place, mask=there, other=0.0).to(tl.float32) * a[None, :] + b[None, :]
    if OTHER > 0:
        added = tl.load(other + place, mask=there, other=0.0).to(tl.float32)
        if OTHER == 2:
            c = tl.load(other_scale + column, mask=inside, other=0.0)
            d = tl.load(other_shift + column, mask=inside, other=0.0)
            added = added * c[None, :] + d[None, :]
        value += added
    if RELU:
        value = tl.maximum(value, 0.0)
    rounded = value.to(y.dtype.element_ty)
    tl.store(y + place, rounded, mask=there)
    if OTHER > 0:
        bits = tl.reshape((rounded > 0).to(tl.int32), (ROWS, COLUMNS // 8, 8)) << tl.arange(0, 8)[None, None, :]
        byte = tl.program_id(1) * (COLUMNS // 8) + tl.arange(0, COLUMNS // 8)
        packed = tl.sum(bits, 2).to(tl.uint8)
        fits = (row < rows)[:, None] & (byte < channels // 8)[None, :]
        tl.store(signs + row[:, None] * (channels // 8) + byte[None, :], packed, mask=fits)


@triton.jit
def signs_of(signs, row, rows, channels, block, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The bits of a tile, as 0 and 1."""
    byte = block * (COLUMNS // 8) + tl.arange(0, COLUMNS // 8)
    fits = (row < rows)[:, None] & (byte < channels // 8)[None, :]
    packed = tl.load(signs + row[:, None] * (channels // 8) + byte[None, :], mask=fits, other=0).to(tl.int32)
    return tl.reshape((packed[:, :, None] >> tl.arange(0, 8)[None, None, :]) & 1, (ROWS, COLUMNS))


@triton.jit
def sums_kernel(
    gradient, x, signs, mean, inverse, scale, shift, sums, products, masked, rows, channels, share,
    MASK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Sums of the gradient, and of it times the normalised input. MASK 1: where the line is above 0; 2: by `signs`,
    and the masked gradient is kept."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    part = tl.program_id(1)
    inside = column < channels
    first = part * share
    last = tl.minimum(first + share, rows)
    centre = tl.load(mean + column, mask=inside, other=0.0)
    a = tl.load(scale + column, mask=inside, other=0.0)
    b = tl.load(shift + column, mask=inside, other=0.0)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    product = tl.zeros((ROWS, COLUMNS), tl.float32)
    place = first.to(tl.int64) * channels + (tl.arange(0, ROWS)[:, None] * channels + column[None, :])
    for start in range(first, last, ROWS):
        row = (start + tl.arange(0, ROWS)).to(tl.int64)
        there = (row < last)[:, None] & inside[None, :]
        value = tl.load(x + place, mask=there, other=0.0).to(tl.float32)
        change = tl.load(gradient + place, mask=there, other=0.0).to(tl.float32)
        if MASK == 1:
            change = tl.where(value * a[None, :] + b[None, :] > 0, change, 0.0)
        if MASK == 2:
            change = tl.where(signs_of(signs, row, last, channels, tl.program_id(0), ROWS, COLUMNS) > 0, change, 0.0)
            tl.store(masked + place, change.to(masked.dtype.element_ty), mask=there)
        total += change
        product += change * (value - centre[None, :])
        place += ROWS * channels
    inv = tl.load(inverse + column, mask=inside, other=0.0)
    tl.store(sums + part * channels + column, tl.sum(total, 0), mask=inside)
    tl.store(products + part * channels + column, tl.sum(product, 0) * inv, mask=inside)


@triton.jit
def input_kernel(
    gradient, x, mean, inverse, scale, shift, sums, products, out, rows, channels,
    MASK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The gradient of the norm's input. MASK 1: the gradient counts where the line is above 0."""
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = column < channels
    there = (row < rows)[:, None] & inside[None, :]
    place = row[:, None] * channels + column[None, :]
    a = tl.load(scale + column, mask=inside, other=0.0)
    value = tl.load(x + place, mask=there, other=0.0).to(tl.float32)
    change = tl.load(gradient + place, mask=there, other=0.0).to(tl.float32)
    if MASK == 1:
        b = tl.load(shift + column, mask=inside, other=0.0)
        change = tl.where(value * a[None, :] + b[None, :] > 0, change, 0.0)
    centre = tl.load(mean + column, mask=inside, other=0.0)
    inv = tl.load(inverse + column, mask=inside, other=0.0)
    steady = tl.load(sums + column, mask=inside, other=0.0) / rows
    slope = tl.load(products + column, mask=inside, other=0.0) / rows * inv
    result = (change - steady[None, :] - (value - centre[None, :]) * slope[None, :]) * a[None, :]
    tl.store(out + place, result.to(out.dtype.element_ty), mask=there)
