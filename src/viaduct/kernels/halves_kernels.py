"""Gather and scatter of even pixels (even row and column) and odd pixels (odd row and column)."""

from __future__ import annotations

import triton
import triton.language as tl

SIZES = ["rows", "height", "width", "half_height", "half_width"]  # not specialised: compiling again takes a second


@triton.jit(do_not_specialize=SIZES)
def gather_kernel(
    x, even, odd, rows, height, width, half_height, half_width, channels, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Copy even and odd pixels to two tensors, one row for each pixel; odd pixels outside of the image are 0."""
    pixel = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (channel < channels)[None, :]
    across = 2 * (pixel % half_width)
    remaining = pixel // half_width
    down = 2 * (remaining % half_height)
    offset = ((remaining // half_height * height + down) * width + across)[:, None] * channels + channel[None, :]
    out_offset = pixel[:, None] * channels + channel[None, :]
    in_bounds = (pixel < rows)[:, None] & inside
    tl.store(even + out_offset, tl.load(x + offset, mask=in_bounds, other=0.0), mask=in_bounds)
    within = ((pixel < rows) & (down + 1 < height) & (across + 1 < width))[:, None] & inside
    tl.store(odd + out_offset, tl.load(x + offset + (width + 1) * channels, mask=within, other=0.0), mask=in_bounds)


@triton.jit(do_not_specialize=SIZES)
def scatter_kernel(
    even, odd, out, rows, height, width, half_height, half_width, channels, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Write even and odd pixels back to images; pixels that are neither get 0."""
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
