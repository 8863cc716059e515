"""Mean and variance of each channel from partial statistics; shared by the kernels of batch norm.

Rows are pixels, columns are channels, as in channels_last. Each program computes one part: the mean and the sum of
squared deviations of its rows, which avoids cancellation for channels far from zero. The last program of a column of
channels combines the parts, which saves a second launch. `tickets` counts the programs that have finished.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def is_last_program(tickets, parts):
    """Return True in the last program of this column, after all others have written their parts; reset the ticket."""
    tl.debug_barrier()
    last = tl.atomic_add(tickets + tl.program_id(0), 1, sem="acq_rel") == parts - 1
    if last:
        tl.store(tickets + tl.program_id(0), 0)
    return last


@triton.jit
def combine_parts(
    means, squared_deviations, counts, weight, bias, running_mean, running_var, batches, output, rows, channels, parts,
    epsilon, momentum, column, TRACK: tl.constexpr, PARTS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Combine parts into the rows of `output`: mean, 1 / standard deviation, scale and shift; update the running
    statistics. Means are relative to the first part's mean (`pivot`) to avoid cancellation."""
    inside = column < channels
    pivot = tl.load(means + column, mask=inside, other=0.0, cache_modifier=".cg")
    total = tl.zeros((PARTS, COLUMNS), tl.float32)
    square = tl.zeros((PARTS, COLUMNS), tl.float32)
    for first in range(0, parts, PARTS):
        part = first + tl.arange(0, PARTS)
        in_bounds = (part < parts)[:, None] & inside[None, :]
        offset = part[:, None] * channels + column[None, :]
        count = tl.load(counts + part, mask=part < parts, other=0.0, cache_modifier=".cg")
        mean = tl.load(means + offset, mask=in_bounds, other=0.0, cache_modifier=".cg")
        deviation = tl.where(in_bounds, mean - pivot[None, :], 0.0)
        total += count[:, None] * deviation
        part_square = tl.load(squared_deviations + offset, mask=in_bounds, other=0.0, cache_modifier=".cg")
        square += part_square + count[:, None] * deviation * deviation
    deviation_sum = tl.sum(total, 0)
    mean = pivot + deviation_sum / rows
    squared = tl.maximum(
        tl.sum(square, 0) - deviation_sum * (deviation_sum / rows), 0.0, propagate_nan=tl.PropagateNan.ALL
    )
    inverse_deviation = 1.0 / tl.sqrt(squared / rows + epsilon)
    scale = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32) * inverse_deviation
    shift = tl.load(bias + column, mask=inside, other=0.0).to(tl.float32) - mean * scale
    tl.store(output + column, mean, mask=inside)
    tl.store(output + channels + column, inverse_deviation, mask=inside)
    tl.store(output + 2 * channels + column, scale, mask=inside)
    tl.store(output + 3 * channels + column, shift, mask=inside)
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
    means, squared_deviations, counts, weight, bias, running_mean, running_var, batches, output, rows, channels, parts,
    epsilon, momentum, TRACK: tl.constexpr, PARTS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Combine partial statistics that another kernel has written."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    combine_parts(
        means, squared_deviations, counts, weight, bias, running_mean, running_var, batches, output, rows, channels,
        parts, epsilon, momentum, column, TRACK, PARTS, COLUMNS,
    )  # fmt: skip


@triton.jit
def sum_parts(table, output, channels, parts, column, PARTS: tl.constexpr, COLUMNS: tl.constexpr):
    """Sum the parts of two consecutive tables into the two rows of `output`."""
    inside = column < channels
    first_sum = tl.zeros((PARTS, COLUMNS), tl.float32)
    second_sum = tl.zeros((PARTS, COLUMNS), tl.float32)
    for first in range(0, parts, PARTS):
        part = first + tl.arange(0, PARTS)
        in_bounds = (part < parts)[:, None] & inside[None, :]
        offset = part[:, None] * channels + column[None, :]
        first_sum += tl.load(table + offset, mask=in_bounds, other=0.0, cache_modifier=".cg")
        second_sum += tl.load(table + parts * channels + offset, mask=in_bounds, other=0.0, cache_modifier=".cg")
    tl.store(output + column, tl.sum(first_sum, 0), mask=inside)
    tl.store(output + channels + column, tl.sum(second_sum, 0), mask=inside)


@triton.jit
def sum_parts_kernel(table, output, channels, parts, PARTS: tl.constexpr, COLUMNS: tl.constexpr):
    """Sum partial sums that another kernel has written."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    sum_parts(table, output, channels, parts, column, PARTS, COLUMNS)
