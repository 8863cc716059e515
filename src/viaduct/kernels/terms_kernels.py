"""A state of a cell: the sum of one or two terms, and in the backward pass the sum of its readers' gradients.

A term is an image as it is, a norm's scale and shift of it, or a pool over it. Readers take the sum as it is or through
a ReLU, and the gradient of each may be some of the channels of a larger tensor.
"""

from __future__ import annotations

import triton
import triton.language as tl

from viaduct.kernels.moments_kernels import is_last_program, sum_parts
from viaduct.kernels.pooling_kernels import compute_pool, list_pixels

SAME = tl.constexpr(1)
SCALE_SHIFT = tl.constexpr(2)
MAX = tl.constexpr(3)
AVERAGE = tl.constexpr(4)


@triton.jit
def compute_term(
    x, scale, shift, keep, chosen, pixel, channel, rows, channels, height, width, out_height, out_width, area,
    top, left, KIND: tl.constexpr, SIZE: tl.constexpr, STRIDE: tl.constexpr, KEEP: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute a tile of a summand, in float32; KEEP: images, of `area` pixels, have a factor each."""
    inside = channel < channels
    there = (pixel < rows)[:, None] & inside[None, :]
    home = pixel[:, None] * channels + channel[None, :]
    if KIND >= MAX:
        value, which = compute_pool(
            x, pixel, channel, rows, channels, height, width, out_height, out_width, top, left,
            SIZE, STRIDE, KIND == AVERAGE, ROWS, COLUMNS,
        )  # fmt: skip
        if KIND == MAX:
            tl.store(chosen + home, which.to(tl.uint8), mask=there)
    else:
        value = tl.load(x + home, mask=there, other=0.0).to(tl.float32)
    if KIND == SCALE_SHIFT:
        a = tl.load(scale + channel, mask=inside, other=0.0)
        b = tl.load(shift + channel, mask=inside, other=0.0)
        value = value * a[None, :] + b[None, :]
    if KEEP:
        value *= tl.load(keep + pixel // area, mask=pixel < rows, other=0.0)[:, None]
    return value


SIZES = [
    "rows",
    "height",
    "width",
    "out_height",
    "out_width",
    "area",
]  # one kernel for all of them: compiling takes a second
PADS = ["one_top", "one_left", "two_top", "two_left"]


@triton.jit(do_not_specialize=[*SIZES, *PADS])
def sum_kernel(
    one, one_scale, one_shift, one_keep, one_chosen, one_top, one_left,
    two, two_scale, two_shift, two_keep, two_chosen, two_top, two_left,
    raw, positive, signs, pitch, rows, channels, height, width, out_height, out_width, area,
    ONE: tl.constexpr, ONE_SIZE: tl.constexpr, ONE_KEEP: tl.constexpr,
    TWO: tl.constexpr, TWO_SIZE: tl.constexpr, TWO_KEEP: tl.constexpr,
    STRIDE: tl.constexpr, RAW: tl.constexpr, POSITIVE: tl.constexpr, SIGNS: tl.constexpr,
    TALL: tl.constexpr, WIDE: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """raw = one + two, positive = relu(one + two), and a bit where it is above 0; `pitch` lies between two pixels of
    positive, whose channels may be some of many."""
    ROWS: tl.constexpr = TALL * WIDE
    pixel = list_pixels(tl.program_id(0), rows, out_height, out_width, TALL, WIDE)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    value = compute_term(
        one, one_scale, one_shift, one_keep, one_chosen, pixel, channel, rows, channels, height, width,
        out_height, out_width, area, one_top, one_left, ONE, ONE_SIZE, STRIDE, ONE_KEEP, ROWS, COLUMNS,
    )  # fmt: skip
    if TWO > 0:
        value += compute_term(
            two, two_scale, two_shift, two_keep, two_chosen, pixel, channel, rows, channels, height, width,
            out_height, out_width, area, two_top, two_left, TWO, TWO_SIZE, STRIDE, TWO_KEEP, ROWS, COLUMNS,
        )  # fmt: skip
    there = (pixel < rows)[:, None] & (channel < channels)[None, :]
    if RAW:
        tl.store(raw + pixel[:, None] * channels + channel[None, :], value.to(raw.dtype.element_ty), mask=there)
    if POSITIVE:
        above = tl.maximum(value, 0.0).to(positive.dtype.element_ty)
        tl.store(positive + pixel[:, None] * pitch + channel[None, :], above, mask=there)
    if SIGNS:
        ones = (there & (value.to(positive.dtype.element_ty) > 0)).to(tl.int32)
        bits = tl.reshape(ones, (ROWS, COLUMNS // 8, 8)) << tl.arange(0, 8)[None, None, :]
        byte = tl.program_id(1) * (COLUMNS // 8) + tl.arange(0, COLUMNS // 8)
        many = (channels + 7) // 8
        fits = (pixel < rows)[:, None] & (byte < many)[None, :]
        tl.store(signs + pixel[:, None] * many + byte[None, :], tl.sum(bits, 2).to(tl.uint8), mask=fits)


@triton.jit
def load_gradient(gradient, pitch, row, column, there, positive, MASKED: tl.constexpr):
    change = tl.load(gradient + row[:, None] * pitch + column[None, :], mask=there, other=0.0).to(tl.float32)
    if MASKED:
        change = tl.where(positive, change, 0.0)
    return change


@triton.jit(do_not_specialize=["rows"])
def merge_kernel(
    first, second, third, fourth, first_pitch, second_pitch, third_pitch, fourth_pitch, signs, x, mean, inverse,
    change, table, made, tickets, rows, channels,
    COUNT: tl.constexpr, MASKED: tl.constexpr, SUMS: tl.constexpr, PARTS: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """change = the sum of COUNT gradients; those whose bit is set in MASKED count where `signs` has one. SUMS: also the
    sums of the change, and of it times x normalised."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    part = tl.program_id(1)
    parts = tl.num_programs(1)
    tiles = tl.cdiv(rows, ROWS)
    inside = column < channels
    if SUMS:
        centre = tl.load(mean + column, mask=inside, other=0.0)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    product = tl.zeros((ROWS, COLUMNS), tl.float32)
    for turn in range(part, tiles, parts):
        row = (tiles - 1 - turn) * ROWS + tl.arange(0, ROWS)
        there = (row < rows)[:, None] & inside[None, :]
        positive = there
        if MASKED > 0:
            many = (channels + 7) // 8
            byte = tl.program_id(0) * (COLUMNS // 8) + tl.arange(0, COLUMNS // 8)
            fits = (row < rows)[:, None] & (byte < many)[None, :]
            packed = tl.load(signs + row[:, None] * many + byte[None, :], mask=fits, other=0).to(tl.int32)
            positive = tl.reshape((packed[:, :, None] >> tl.arange(0, 8)[None, None, :]) & 1, (ROWS, COLUMNS)) > 0
        value = load_gradient(first, first_pitch, row, column, there, positive, MASKED % 2 == 1)
        if COUNT > 1:
            value += load_gradient(second, second_pitch, row, column, there, positive, MASKED // 2 % 2 == 1)
        if COUNT > 2:
            value += load_gradient(third, third_pitch, row, column, there, positive, MASKED // 4 % 2 == 1)
        if COUNT > 3:
            value += load_gradient(fourth, fourth_pitch, row, column, there, positive, MASKED // 8 == 1)
        home = row[:, None] * channels + column[None, :]
        tl.store(change + home, value.to(change.dtype.element_ty), mask=there)
        if SUMS:
            seen = tl.load(x + home, mask=there, other=0.0).to(tl.float32)
            total += value
            product += tl.where(there, value * (seen - centre[None, :]), 0.0)
    if SUMS:
        inv = tl.load(inverse + column, mask=inside, other=0.0)
        tl.store(table + part * channels + column, tl.sum(total, 0), mask=inside)
        tl.store(table + (parts + part) * channels + column, tl.sum(product, 0) * inv, mask=inside)
        if is_last_program(tickets, parts):
            sum_parts(table, made, channels, parts, column, PARTS, COLUMNS)
