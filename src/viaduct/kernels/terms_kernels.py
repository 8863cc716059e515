"""State of an AmoebaNet cell: the sum of one or two terms, and in the backward pass the sum of its readers' gradients.

A term is an image, an image behind a norm's scale and shift, or a pool of an image. Readers take the sum directly or
through a ReLU. A reader's gradient may be some channels of a larger tensor.
"""

from __future__ import annotations

import triton
import triton.language as tl

from viaduct.kernels.moments_kernels import is_last_program, sum_parts
from viaduct.kernels.pooling_kernels import compute_pool, list_pixels

# Kinds of terms: an image itself, an image behind a norm, a max pool, an average pool.
SAME = tl.constexpr(1)
SCALE_SHIFT = tl.constexpr(2)
MAX = tl.constexpr(3)
AVERAGE = tl.constexpr(4)


@triton.jit
def compute_term(
    x, scale, shift, factor, argmax, pixel, channel, rows, channels, height, width, out_height, out_width, area,
    top, left, KIND: tl.constexpr, SIZE: tl.constexpr, STRIDE: tl.constexpr, FACTOR: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute a tile of a term in float32; FACTOR: multiply each image of `area` pixels by its drop path factor.
    A max pool stores the index of the maximum in `argmax`."""
    inside = channel < channels
    in_bounds = (pixel < rows)[:, None] & inside[None, :]
    out_offset = pixel[:, None] * channels + channel[None, :]
    if KIND >= MAX:
        value, best_cell = compute_pool(
            x, pixel, channel, rows, channels, height, width, out_height, out_width, top, left,
            SIZE, STRIDE, KIND == AVERAGE, ROWS, COLUMNS,
        )  # fmt: skip
        if KIND == MAX:
            tl.store(argmax + out_offset, best_cell.to(tl.uint8), mask=in_bounds)
    else:
        value = tl.load(x + out_offset, mask=in_bounds, other=0.0).to(tl.float32)
    if KIND == SCALE_SHIFT:
        scales = tl.load(scale + channel, mask=inside, other=0.0)
        shifts = tl.load(shift + channel, mask=inside, other=0.0)
        value = value * scales[None, :] + shifts[None, :]
    if FACTOR:
        value *= tl.load(factor + pixel // area, mask=pixel < rows, other=0.0)[:, None]
    return value


# Triton does not specialise the kernel for these sizes, because compiling again takes a second.
SIZES = ["rows", "height", "width", "out_height", "out_width", "area"]
PADS = ["first_top", "first_left", "second_top", "second_left"]


@triton.jit(do_not_specialize=[*SIZES, *PADS])
def sum_kernel(
    first, first_scale, first_shift, first_factor, first_argmax, first_top, first_left,
    second, second_scale, second_shift, second_factor, second_argmax, second_top, second_left,
    raw, positive, signs, pitch, rows, channels, height, width, out_height, out_width, area,
    FIRST: tl.constexpr, FIRST_SIZE: tl.constexpr, FIRST_FACTOR: tl.constexpr,
    SECOND: tl.constexpr, SECOND_SIZE: tl.constexpr, SECOND_FACTOR: tl.constexpr,
    STRIDE: tl.constexpr, RAW: tl.constexpr, POSITIVE: tl.constexpr, SIGNS: tl.constexpr,
    TILE_HEIGHT: tl.constexpr, TILE_WIDTH: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute raw = first + second, positive = relu(raw), and `signs`, bits that are 1 where raw is above 0. `pitch` is
    the stride of a pixel in `positive`, which may be some channels of a larger tensor."""
    ROWS: tl.constexpr = TILE_HEIGHT * TILE_WIDTH
    pixel = list_pixels(tl.program_id(0), rows, out_height, out_width, TILE_HEIGHT, TILE_WIDTH)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    value = compute_term(
        first, first_scale, first_shift, first_factor, first_argmax, pixel, channel, rows, channels, height, width,
        out_height, out_width, area, first_top, first_left, FIRST, FIRST_SIZE, STRIDE, FIRST_FACTOR, ROWS, COLUMNS,
    )  # fmt: skip
    if SECOND > 0:
        value += compute_term(
            second, second_scale, second_shift, second_factor, second_argmax, pixel, channel, rows, channels, height,
            width, out_height, out_width, area, second_top, second_left, SECOND, SECOND_SIZE, STRIDE, SECOND_FACTOR,
            ROWS, COLUMNS,
        )  # fmt: skip
    in_bounds = (pixel < rows)[:, None] & (channel < channels)[None, :]
    if RAW:
        tl.store(raw + pixel[:, None] * channels + channel[None, :], value.to(raw.dtype.element_ty), mask=in_bounds)
    if POSITIVE:
        positive_values = tl.maximum(value, 0.0, propagate_nan=tl.PropagateNan.ALL).to(positive.dtype.element_ty)
        tl.store(positive + pixel[:, None] * pitch + channel[None, :], positive_values, mask=in_bounds)
    if SIGNS:
        is_positive = (in_bounds & (value.to(positive.dtype.element_ty) > 0)).to(tl.int32)
        bits = tl.reshape(is_positive, (ROWS, COLUMNS // 8, 8)) << tl.arange(0, 8)[None, None, :]
        byte = tl.program_id(1) * (COLUMNS // 8) + tl.arange(0, COLUMNS // 8)
        row_bytes = (channels + 7) // 8
        fits = (pixel < rows)[:, None] & (byte < row_bytes)[None, :]
        tl.store(signs + pixel[:, None] * row_bytes + byte[None, :], tl.sum(bits, 2).to(tl.uint8), mask=fits)


@triton.jit
def load_gradient(gradient, pitch, row, column, in_bounds, positive, MASKED: tl.constexpr):
    values = tl.load(gradient + row[:, None] * pitch + column[None, :], mask=in_bounds, other=0.0).to(tl.float32)
    if MASKED:
        values = tl.where(positive, values, 0.0)
    return values


@triton.jit(do_not_specialize=["rows"])
def merge_kernel(
    first, second, third, fourth, first_pitch, second_pitch, third_pitch, fourth_pitch, signs, x, mean,
    inverse_deviation, merged, table, output, tickets, rows, channels,
    COUNT: tl.constexpr, MASKED: tl.constexpr, SUMS: tl.constexpr, PARTS: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute `merged`, the sum of COUNT gradients. A gradient whose bit is set in MASKED counts only where `signs` has
    a 1. SUMS: also sum `merged`, and `merged` times the normalised x, for each channel."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    part = tl.program_id(1)
    parts = tl.num_programs(1)
    tiles = tl.cdiv(rows, ROWS)
    inside = column < channels
    if SUMS:
        mean_values = tl.load(mean + column, mask=inside, other=0.0)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    product = tl.zeros((ROWS, COLUMNS), tl.float32)
    for tile in range(part, tiles, parts):
        row = (tiles - 1 - tile) * ROWS + tl.arange(0, ROWS)
        in_bounds = (row < rows)[:, None] & inside[None, :]
        positive = in_bounds
        if MASKED > 0:
            row_bytes = (channels + 7) // 8
            byte = tl.program_id(0) * (COLUMNS // 8) + tl.arange(0, COLUMNS // 8)
            fits = (row < rows)[:, None] & (byte < row_bytes)[None, :]
            packed = tl.load(signs + row[:, None] * row_bytes + byte[None, :], mask=fits, other=0).to(tl.int32)
            positive = tl.reshape((packed[:, :, None] >> tl.arange(0, 8)[None, None, :]) & 1, (ROWS, COLUMNS)) > 0
        value = load_gradient(first, first_pitch, row, column, in_bounds, positive, MASKED % 2 == 1)
        if COUNT > 1:
            value += load_gradient(second, second_pitch, row, column, in_bounds, positive, MASKED // 2 % 2 == 1)
        if COUNT > 2:
            value += load_gradient(third, third_pitch, row, column, in_bounds, positive, MASKED // 4 % 2 == 1)
        if COUNT > 3:
            value += load_gradient(fourth, fourth_pitch, row, column, in_bounds, positive, MASKED // 8 == 1)
        out_offset = row[:, None] * channels + column[None, :]
        tl.store(merged + out_offset, value.to(merged.dtype.element_ty), mask=in_bounds)
        if SUMS:
            x_values = tl.load(x + out_offset, mask=in_bounds, other=0.0).to(tl.float32)
            total += value
            product += tl.where(in_bounds, value * (x_values - mean_values[None, :]), 0.0)
    if SUMS:
        inverse_deviations = tl.load(inverse_deviation + column, mask=inside, other=0.0)
        tl.store(table + part * channels + column, tl.sum(total, 0), mask=inside)
        tl.store(table + (parts + part) * channels + column, tl.sum(product, 0) * inverse_deviations, mask=inside)
        if is_last_program(tickets, parts):
            sum_parts(table, output, channels, parts, column, PARTS, COLUMNS)
