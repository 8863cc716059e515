"""Means and variances of channels, gathered in parts: what the kernels around batch norm share.

Rows are pixels, columns are channels, as channels_last has them. A part is what one program has seen: its mean and its
sum of squared deviations, so that nothing cancels however far a channel lies from zero.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def settle_kernel(
    means, squares, counts, weight, bias, running_mean, running_var, batches, mean_out, inverse_out, scale_out,
    shift_out, rows, channels, parts, epsilon, momentum,
    TRACK: tl.constexpr, PARTS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Parts become mean, 1/deviation and the line `scale * x + shift`; the running statistics follow."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < channels
    total = tl.zeros((PARTS, COLUMNS), tl.float32)
    for first in range(0, parts, PARTS):
        part = first + tl.arange(0, PARTS)
        there = (part < parts)[:, None] & inside[None, :]
        seen = tl.load(counts + part, mask=part < parts, other=0.0)
        total += seen[:, None] * tl.load(means + part[:, None] * channels + column[None, :], mask=there, other=0.0)
    mean = tl.sum(total, 0) / rows
    spread = tl.zeros((PARTS, COLUMNS), tl.float32)
    for first in range(0, parts, PARTS):
        part = first + tl.arange(0, PARTS)
        there = (part < parts)[:, None] & inside[None, :]
        seen = tl.load(counts + part, mask=part < parts, other=0.0)
        place = part[:, None] * channels + column[None, :]
        apart = tl.load(means + place, mask=there, other=0.0) - mean[None, :]
        spread += tl.where(there, tl.load(squares + place, mask=there, other=0.0) + seen[:, None] * apart * apart, 0.0)
    squared = tl.sum(spread, 0)
    inverse = 1.0 / tl.sqrt(squared / rows + epsilon)
    scale = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32) * inverse
    tl.store(mean_out + column, mean, mask=inside)
    tl.store(inverse_out + column, inverse, mask=inside)
    tl.store(scale_out + column, scale, mask=inside)
    shift = tl.load(bias + column, mask=inside, other=0.0).to(tl.float32) - mean * scale
    tl.store(shift_out + column, shift, mask=inside)
    if TRACK:
        old_mean = tl.load(running_mean + column, mask=inside, other=0.0)
        old_var = tl.load(running_var + column, mask=inside, other=0.0)
        tl.store(running_mean + column, old_mean + momentum * (mean - old_mean), mask=inside)
        unbiased = squared / tl.maximum(rows - 1.0, 1.0)
        tl.store(running_var + column, old_var + momentum * (unbiased - old_var), mask=inside)
        if tl.program_id(0) == 0:
            tl.store(batches, tl.load(batches) + 1)


@triton.jit
def total_kernel(
    first_parts, second_parts, first_out, second_out, channels, parts, PARTS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Sums over the parts of two tables."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < channels
    one = tl.zeros((PARTS, COLUMNS), tl.float32)
    two = tl.zeros((PARTS, COLUMNS), tl.float32)
    for first in range(0, parts, PARTS):
        part = first + tl.arange(0, PARTS)
        there = (part < parts)[:, None] & inside[None, :]
        place = part[:, None] * channels + column[None, :]
        one += tl.load(first_parts + place, mask=there, other=0.0)
        two += tl.load(second_parts + place, mask=there, other=0.0)
    tl.store(first_out + column, tl.sum(one, 0), mask=inside)
    tl.store(second_out + column, tl.sum(two, 0), mask=inside)
