"""Max and average pooling with TensorFlow's SAME padding, for channels_last images.

The backward pass reads, for every pixel, the windows that contain it. It needs no atomic additions, so the result is
deterministic.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Not specialised: compiling again takes a second.
SIZES = ["rows", "height", "width", "out_height", "out_width", "top", "left"]


@triton.jit
def list_pixels(tile, rows, height, width, TALL: tl.constexpr, WIDE: tl.constexpr):
    """Return the pixel indices of a tile of TALL x WIDE; the index is `rows` outside of the image."""
    offset = tl.arange(0, TALL * WIDE)
    tiles = (width + WIDE - 1) // WIDE
    column = tile % tiles * WIDE + offset % WIDE
    remaining = tile // tiles
    tiles = (height + TALL - 1) // TALL
    row = remaining % tiles * TALL + offset // WIDE
    return tl.where((row < height) & (column < width), (remaining // tiles * height + row) * width + column, rows)


@triton.jit
def compute_pool(
    x, pixel, channel, rows, channels, height, width, out_height, out_width, top, left,
    SIZE: tl.constexpr, STRIDE: tl.constexpr, AVERAGE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute a tile of output pixels, and for max pooling the index of the maximum within its window."""
    inside = (channel < channels)[None, :]
    across = pixel % out_width * STRIDE - left
    remaining = pixel // out_width
    down = remaining % out_height * STRIDE - top
    offsets = (((remaining // out_height) * height + down) * width + across)[:, None] * channels + channel[None, :]
    best = tl.full((ROWS, COLUMNS), 0.0 if AVERAGE else float("-inf"), tl.float32)
    which = tl.zeros((ROWS, COLUMNS), tl.int32)
    count = tl.zeros((ROWS,), tl.float32)
    for cell in tl.static_range(SIZE * SIZE):
        row = down + cell // SIZE
        column = across + cell % SIZE
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
            which = tl.where(better, cell, which)
    if AVERAGE:
        best = best / tl.maximum(count, 1.0)[:, None]
    return best, which


@triton.jit(do_not_specialize=SIZES)
def pooling_forward_kernel(
    x, y, argmax, rows, height, width, out_height, out_width, top, left, channels,
    SIZE: tl.constexpr, STRIDE: tl.constexpr, AVERAGE: tl.constexpr,
    TALL: tl.constexpr, WIDE: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute the pool, one row for each output pixel; max pooling stores the index of the maximum in `argmax`."""
    pixel = list_pixels(tl.program_id(0), rows, out_height, out_width, TALL, WIDE)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    best, which = compute_pool(
        x, pixel, channel, rows, channels, height, width, out_height, out_width, top, left,
        SIZE, STRIDE, AVERAGE, TALL * WIDE, COLUMNS,
    )  # fmt: skip
    out_offset = pixel[:, None] * channels + channel[None, :]
    in_output = (pixel < rows)[:, None] & (channel < channels)[None, :]
    if not AVERAGE:
        tl.store(argmax + out_offset, which.to(tl.uint8), mask=in_output)
    tl.store(y + out_offset, best.to(y.dtype.element_ty), mask=in_output)


@triton.jit(do_not_specialize=SIZES)
def max_pooling_kernel(
    x, y, rows, height, width, out_height, out_width, top, left, channels,
    SIZE: tl.constexpr, STRIDE: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute max pooling for inference, without storing the argmax."""
    pixel = list_pixels(tl.program_id(0), rows, out_height, out_width, TALL, WIDE)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    best, _ = compute_pool(
        x, pixel, channel, rows, channels, height, width, out_height, out_width, top, left,
        SIZE, STRIDE, False, TALL * WIDE, COLUMNS,
    )  # fmt: skip
    out_offset = pixel[:, None] * channels + channel[None, :]
    in_output = (pixel < rows)[:, None] & (channel < channels)[None, :]
    tl.store(y + out_offset, best.to(y.dtype.element_ty), mask=in_output)


@triton.jit(do_not_specialize=SIZES)
def pooling_backward_kernel(
    gradient, argmax, out, rows, height, width, out_height, out_width, top, left, channels, pitch,
    SIZE: tl.constexpr, STRIDE: tl.constexpr, AVERAGE: tl.constexpr,
    TALL: tl.constexpr, WIDE: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute the gradient w.r.t. input, one row for each input pixel. `pitch` is the stride of a pixel in the
    gradient, which may be some channels of a larger tensor."""
    pixel = list_pixels(tl.program_id(0), rows, height, width, TALL, WIDE)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (channel < channels)[None, :]
    across = pixel % width
    remaining = pixel // width
    down = remaining % height
    last_row = (down + top) // STRIDE  # the last window that begins at or before this pixel
    last_column = (across + left) // STRIDE
    windows = ((remaining // height) * out_height + last_row) * out_width + last_column
    grads = windows[:, None] * pitch + channel[None, :]
    marks = windows[:, None] * channels + channel[None, :]
    total = tl.zeros((TALL * WIDE, COLUMNS), tl.float32)
    EACH: tl.constexpr = (SIZE + STRIDE - 1) // STRIDE
    for window in tl.static_range(EACH * EACH):
        row = last_row - window // EACH
        column = last_column - window % EACH
        cell_row = down + top - row * STRIDE
        cell_column = across + left - column * STRIDE
        in_bounds = (pixel < rows) & (row >= 0) & (row < out_height) & (column >= 0) & (column < out_width)
        in_bounds &= (cell_row < SIZE) & (cell_column < SIZE)
        step = window // EACH * out_width + window % EACH
        in_window = in_bounds[:, None] & inside
        window_gradient = tl.load(gradient + grads - step * pitch, mask=in_window, other=0.0).to(tl.float32)
        if AVERAGE:
            first_row = row * STRIDE - top
            first_column = column * STRIDE - left
            tall = tl.minimum(first_row + SIZE, height) - tl.maximum(first_row, 0)
            wide = tl.minimum(first_column + SIZE, width) - tl.maximum(first_column, 0)
            total += window_gradient / tl.maximum(tall * wide, 1).to(tl.float32)[:, None]
        else:
            mark = tl.load(argmax + marks - step * channels, mask=in_window, other=255).to(tl.int32)
            total += tl.where(mark == (cell_row * SIZE + cell_column)[:, None], window_gradient, 0.0)
    out_offset = pixel[:, None] * channels + channel[None, :]
    tl.store(out + out_offset, total.to(out.dtype.element_ty), mask=(pixel < rows)[:, None] & inside)
