"""Max and average pooling with TensorFlow's SAME or VALID padding, for channels_last images.

The backward pass reads, for every pixel, the windows that contain it. It needs no atomic additions, so the result is
deterministic.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Triton does not specialise the kernels for these sizes, because compiling again takes a second.
SIZES = ["rows", "height", "width", "out_height", "out_width", "top", "left"]


@triton.jit
def list_pixels(tile, rows, height, width, TILE_HEIGHT: tl.constexpr, TILE_WIDTH: tl.constexpr):
    """Return the pixel indices of a tile of TILE_HEIGHT x TILE_WIDTH; the index is `rows` outside of the image."""
    offset = tl.arange(0, TILE_HEIGHT * TILE_WIDTH)
    tiles = (width + TILE_WIDTH - 1) // TILE_WIDTH
    column = tile % tiles * TILE_WIDTH + offset % TILE_WIDTH
    remaining = tile // tiles
    tiles = (height + TILE_HEIGHT - 1) // TILE_HEIGHT
    row = remaining % tiles * TILE_HEIGHT + offset // TILE_WIDTH
    return tl.where((row < height) & (column < width), (remaining // tiles * height + row) * width + column, rows)


@triton.jit
def compute_pool(
    x, pixel, channel, rows, channels, height, width, out_height, out_width, top, left,
    SIZE: tl.constexpr, STRIDE: tl.constexpr, AVERAGE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute a tile of output pixels, and for max pooling the index of the maximum within its window."""
    inside = (channel < channels)[None, :]
    window_column = pixel % out_width * STRIDE - left
    remaining = pixel // out_width
    window_row = remaining % out_height * STRIDE - top
    corner = ((remaining // out_height) * height + window_row) * width + window_column
    offsets = corner[:, None] * channels + channel[None, :]
    best = tl.full((ROWS, COLUMNS), 0.0 if AVERAGE else float("-inf"), tl.float32)
    best_cell = tl.zeros((ROWS, COLUMNS), tl.int32)
    count = tl.zeros((ROWS,), tl.float32)
    for cell in tl.static_range(SIZE * SIZE):
        row = window_row + cell // SIZE
        column = window_column + cell % SIZE
        in_bounds = (pixel < rows) & (row >= 0) & (row < height) & (column >= 0) & (column < width)
        in_window = in_bounds[:, None] & inside
        offset = offsets + (cell // SIZE * width + cell % SIZE) * channels
        value = tl.load(x + offset, mask=in_window, other=0.0).to(tl.float32)
        if AVERAGE:
            best += value
            count += in_bounds.to(tl.float32)
        else:
            better = in_window & ((value > best) | (value != value))  # a NaN is the maximum, as in PyTorch
            best = tl.where(better, value, best)
            best_cell = tl.where(better, cell, best_cell)
    if AVERAGE:
        best = best / tl.maximum(count, 1.0)[:, None]
    return best, best_cell


@triton.jit(do_not_specialize=SIZES)
def pooling_forward_kernel(
    x, y, argmax, rows, height, width, out_height, out_width, top, left, channels,
    SIZE: tl.constexpr, STRIDE: tl.constexpr, AVERAGE: tl.constexpr, ARGMAX: tl.constexpr,
    TILE_HEIGHT: tl.constexpr, TILE_WIDTH: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute the pool, one row for each output pixel. ARGMAX: store the index of each maximum in `argmax`, which the
    backward pass of a max pool reads."""
    pixel = list_pixels(tl.program_id(0), rows, out_height, out_width, TILE_HEIGHT, TILE_WIDTH)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    best, best_cell = compute_pool(
        x, pixel, channel, rows, channels, height, width, out_height, out_width, top, left,
        SIZE, STRIDE, AVERAGE, TILE_HEIGHT * TILE_WIDTH, COLUMNS,
    )  # fmt: skip
    out_offset = pixel[:, None] * channels + channel[None, :]
    in_output = (pixel < rows)[:, None] & (channel < channels)[None, :]
    if ARGMAX:
        tl.store(argmax + out_offset, best_cell.to(tl.uint8), mask=in_output)
    tl.store(y + out_offset, best.to(y.dtype.element_ty), mask=in_output)


@triton.jit(do_not_specialize=SIZES)
def pooling_backward_kernel(
    gradient, argmax, out, rows, height, width, out_height, out_width, top, left, channels, pitch,
    SIZE: tl.constexpr, STRIDE: tl.constexpr, AVERAGE: tl.constexpr,
    TILE_HEIGHT: tl.constexpr, TILE_WIDTH: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute the gradient w.r.t. input, one row for each input pixel. `pitch` is the stride of a pixel in the
    gradient, which may be some channels of a larger tensor."""
    pixel = list_pixels(tl.program_id(0), rows, height, width, TILE_HEIGHT, TILE_WIDTH)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (channel < channels)[None, :]
    pixel_column = pixel % width
    remaining = pixel // width
    pixel_row = remaining % height
    last_row = (pixel_row + top) // STRIDE  # the last window that begins at or before this pixel
    last_column = (pixel_column + left) // STRIDE
    windows = ((remaining // height) * out_height + last_row) * out_width + last_column
    gradient_offsets = windows[:, None] * pitch + channel[None, :]
    argmax_offsets = windows[:, None] * channels + channel[None, :]
    total = tl.zeros((TILE_HEIGHT * TILE_WIDTH, COLUMNS), tl.float32)
    WINDOWS: tl.constexpr = (SIZE + STRIDE - 1) // STRIDE
    for window in tl.static_range(WINDOWS * WINDOWS):
        row = last_row - window // WINDOWS
        column = last_column - window % WINDOWS
        cell_row = pixel_row + top - row * STRIDE
        cell_column = pixel_column + left - column * STRIDE
        in_bounds = (pixel < rows) & (row >= 0) & (row < out_height) & (column >= 0) & (column < out_width)
        in_bounds &= (cell_row < SIZE) & (cell_column < SIZE)
        window_step = window // WINDOWS * out_width + window % WINDOWS
        in_window = in_bounds[:, None] & inside
        window_gradient = tl.load(gradient + gradient_offsets - window_step * pitch, mask=in_window, other=0.0)
        window_gradient = window_gradient.to(tl.float32)
        if AVERAGE:
            first_row = row * STRIDE - top
            first_column = column * STRIDE - left
            window_height = tl.minimum(first_row + SIZE, height) - tl.maximum(first_row, 0)
            window_width = tl.minimum(first_column + SIZE, width) - tl.maximum(first_column, 0)
            total += window_gradient / tl.maximum(window_height * window_width, 1).to(tl.float32)[:, None]
        else:
            best_cell = tl.load(argmax + argmax_offsets - window_step * channels, mask=in_window, other=255)
            total += tl.where(best_cell.to(tl.int32) == (cell_row * SIZE + cell_column)[:, None], window_gradient, 0.0)
    out_offset = pixel[:, None] * channels + channel[None, :]
    tl.store(out + out_offset, total.to(out.dtype.element_ty), mask=(pixel < rows)[:, None] & inside)
