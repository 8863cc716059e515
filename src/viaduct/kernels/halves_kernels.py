"""Gather and scatter of even pixels (even row and column) and odd pixels (odd row and column)."""

from __future__ import annotations

import triton
import triton.language as tl

# Triton does not specialise the kernels for these sizes, because compiling again takes a second.
SIZES = ["rows", "height", "width", "half_height", "half_width"]


@triton.jit(do_not_specialize=SIZES)
def gather_kernel(
    x, even, odd, rows, height, width, half_height, half_width, channels, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Copy even and odd pixels to two tensors, one row for each pixel; odd pixels outside of the image are 0."""
    pixel = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (channel < channels)[None, :]
    pixel_column = 2 * (pixel % half_width)
    remaining = pixel // half_width
    pixel_row = 2 * (remaining % half_height)
    source = (remaining // half_height * height + pixel_row) * width + pixel_column
    offset = source[:, None] * channels + channel[None, :]
    out_offset = pixel[:, None] * channels + channel[None, :]
    in_bounds = (pixel < rows)[:, None] & inside
    tl.store(even + out_offset, tl.load(x + offset, mask=in_bounds, other=0.0), mask=in_bounds)
    has_odd = ((pixel < rows) & (pixel_row + 1 < height) & (pixel_column + 1 < width))[:, None] & inside
    tl.store(odd + out_offset, tl.load(x + offset + (width + 1) * channels, mask=has_odd, other=0.0), mask=in_bounds)


@triton.jit(do_not_specialize=SIZES)
def scatter_kernel(
    even, odd, out, rows, height, width, half_height, half_width, channels, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Write rows of even and odd pixels back to images; pixels that are neither get 0."""
    pixel = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (channel < channels)[None, :]
    pixel_column = pixel % width
    remaining = pixel // width
    pixel_row = remaining % height
    source = (remaining // height * half_height + pixel_row // 2) * half_width + pixel_column // 2
    offset = source[:, None] * channels + channel[None, :]
    is_even = ((pixel < rows) & (pixel_row % 2 == 0) & (pixel_column % 2 == 0))[:, None] & inside
    is_odd = ((pixel < rows) & (pixel_row % 2 == 1) & (pixel_column % 2 == 1))[:, None] & inside
    value = tl.load(even + offset, mask=is_even, other=0.0) + tl.load(odd + offset, mask=is_odd, other=0.0)
    tl.store(out + pixel[:, None] * channels + channel[None, :], value, mask=(pixel < rows)[:, None] & inside)
