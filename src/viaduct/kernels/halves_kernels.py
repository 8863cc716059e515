"""Every second pixel of every second row, twice: the even ones, and the odd ones below and to the right of them."""

from __future__ import annotations

import triton
import triton.language as tl

SIZES = ["rows", "height", "width", "half_height", "half_width"]  # one kernel for all of them: compiling takes a second


@triton.jit(do_not_specialize=SIZES)
def gather_kernel(
    x, even, odd, rows, height, width, half_height, half_width, channels, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """One pixel of the halves a row; an odd one outside the image is zero."""
    pixel = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (channel < channels)[None, :]
    across = 2 * (pixel % half_width)
    remaining = pixel // half_width
    down = 2 * (remaining % half_height)
    offset = ((remaining // half_height * height + down) * width + across)[:, None] * channels + channel[None, :]
    home = pixel[:, None] * channels + channel[None, :]
    there = (pixel < rows)[:, None] & inside
    tl.store(even + home, tl.load(x + offset, mask=there, other=0.0), mask=there)
    within = ((pixel < rows) & (down + 1 < height) & (across + 1 < width))[:, None] & inside
    tl.store(odd + home, tl.load(x + offset + (width + 1) * channels, mask=within, other=0.0), mask=there)


@triton.jit(do_not_specialize=SIZES)
def scatter_kernel(
    even, odd, out, rows, height, width, half_height, half_width, channels, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """One pixel of the image a row: half of them are in neither half, and get zero."""
    pixel = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (channel < channels)[None, :]
    across = pixel % width
    remaining = pixel // width
    down = remaining % height
    offset = ((remaining // height * half_height + down // 2) * half_width + across // 2)[:, None] * channels + channel[
        None, :
    ]
    first = ((pixel < rows) & (down % 2 == 0) & (across % 2 == 0))[:, None] & inside
    second = ((pixel < rows) & (down % 2 == 1) & (across % 2 == 1))[:, None] & inside
    value = tl.load(even + offset, mask=first, other=0.0) + tl.load(odd + offset, mask=second, other=0.0)
    tl.store(out + pixel[:, None] * channels + channel[None, :], value, mask=(pixel < rows)[:, None] & inside)
