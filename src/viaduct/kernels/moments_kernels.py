"""Means and variances of channels, gathered in parts: what the kernels around batch norm share.

Rows are pixels, columns are channels, as channels_last has them. A part is what one program has seen: its mean and its
sum of squared deviations, so that nothing cancels however far a channel lies from zero. The last program to arrive at a
column of channels brings the parts together; a kernel of its own for that would be waited for twice.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def is_last_program(tickets, parts):
    """Return True if all other programs of this column have written their parts. The ticket is 0 again afterwards."""
    tl.debug_barrier()
    last = tl.atomic_add(tickets + tl.program_id(0), 1, sem="acq_rel") == parts - 1
    if last:
        tl.store(tickets + tl.program_id(0), 0)
    return last


@triton.jit
def combine_parts(
    means, squares, counts, weight, bias, running_mean, running_var, batches, made, rows, channels, parts, epsilon,
    momentum, column, TRACK: tl.constexpr, PARTS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Combine parts into mean, 1/deviation, scale and shift, the rows of `made`, and update the running statistics.
    Means are relative to that of the first part, so that nothing cancels."""
    inside = column < channels
    pivot = tl.load(means + column, mask=inside, other=0.0, cache_modifier=".cg")
    total = tl.zeros((PARTS, COLUMNS), tl.float32)
    square = tl.zeros((PARTS, COLUMNS), tl.float32)
    for first in range(0, parts, PARTS):
        part = first + tl.arange(0, PARTS)
        there = (part < parts)[:, None] & inside[None, :]
        offset = part[:, None] * channels + column[None, :]
        seen = tl.load(counts + part, mask=part < parts, other=0.0, cache_modifier=".cg")
        mean = tl.load(means + offset, mask=there, other=0.0, cache_modifier=".cg")
        apart = tl.where(there, mean - pivot[None, :], 0.0)
        total += seen[:, None] * apart
        square += tl.load(squares + offset, mask=there, other=0.0, cache_modifier=".cg") + seen[:, None] * apart * apart
    added = tl.sum(total, 0)
    mean = pivot + added / rows
    squared = tl.maximum(tl.sum(square, 0) - added * (added / rows), 0.0)
    inverse = 1.0 / tl.sqrt(squared / rows + epsilon)
    scale = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32) * inverse
    shift = tl.load(bias + column, mask=inside, other=0.0).to(tl.float32) - mean * scale
    tl.store(made + column, mean, mask=inside)
    tl.store(made + channels + column, inverse, mask=inside)
    tl.store(made + 2 * channels + column, scale, mask=inside)
    tl.store(made + 3 * channels + column, shift, mask=inside)
    if TRACK:
        old_mean = tl.load(running_mean + column, mask=inside, other=0.0)
        old_var = tl.load(running_var + column, mask=inside, other=0.0)
        tl.store(running_mean + column, old_mean + momentum * (mean - old_mean), mask=inside)
        unbiased = squared / tl.maximum(rows - 1.0, 1.0)
        tl.store(running_var + column, old_var + momentum * (unbiased - old_var), mask=inside)
        if tl.program_id(0) == 0:
            tl.store(batches, tl.load(batches) + 1)


@triton.jit
def combine_parts_kernel(
    means, squares, counts, weight, bias, running_mean, running_var, batches, made, rows, channels, parts, epsilon,
    momentum, TRACK: tl.constexpr, PARTS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Combine parts that another kernel has left."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    combine_parts(
        means, squares, counts, weight, bias, running_mean, running_var, batches, made, rows, channels, parts, epsilon,
        momentum, column, TRACK, PARTS, COLUMNS,
    )  # fmt: skip


@triton.jit
def sum_parts(table, made, channels, parts, column, PARTS: tl.constexpr, COLUMNS: tl.constexpr):
    """Sum two tables of parts, one behind the other, into the two rows of `made`."""
    inside = column < channels
    one = tl.zeros((PARTS, COLUMNS), tl.float32)
    two = tl.zeros((PARTS, COLUMNS), tl.float32)
    for first in range(0, parts, PARTS):
        part = first + tl.arange(0, PARTS)
        there = (part < parts)[:, None] & inside[None, :]
        offset = part[:, None] * channels + column[None, :]
        one += tl.load(table + offset, mask=there, other=0.0, cache_modifier=".cg")
        two += tl.load(table + parts * channels + offset, mask=there, other=0.0, cache_modifier=".cg")
    tl.store(made + column, tl.sum(one, 0), mask=inside)
    tl.store(made + channels + column, tl.sum(two, 0), mask=inside)


@triton.jit
def sum_parts_kernel(table, made, channels, parts, PARTS: tl.constexpr, COLUMNS: tl.constexpr):
    """Sum tables that another kernel has left."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    sum_parts(table, made, channels, parts, column, PARTS, COLUMNS)
