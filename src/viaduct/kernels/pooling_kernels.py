"""Max and average pooling over TensorFlow's SAME padding, for images that lie channels_last.

The backward pass reads, for every pixel, the windows that contain it: nothing is added up in memory, so the result is
the same every time. Offsets are computed once, in 32 bits, and windows differ from each other by a constant.
"""

from __future__ import annotations

import triton
import triton.language as tl

# One kernel for all of them: compiling takes a second.
SIZES = ["rows", "height", "width", "out_height", "out_width", "top", "left"]


@triton.jit
def list_pixels(tile, rows, height, width, TALL: tl.constexpr, WIDE: tl.constexpr):
    """Return the pixels of a tile, TALL rows of WIDE: they share most of their neighbours. It is `rows`, which is no
    pixel, where the tile is outside of the image."""
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
    """Compute a tile of pixels of the output, and for a maximum which cell of the window it was."""
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
        there = (pixel < rows) & (row >= 0) & (row < height) & (column >= 0) & (column < width)
        seen = there[:, None] & inside
        offset = offsets + (cell // SIZE * width + cell % SIZE) * channels
        value = tl.load(x + offset, mask=seen, other=0.0).to(tl.float32)
        if AVERAGE:
            best += value
            count += there.to(tl.float32)
        else:
            better = seen & ((value > best) | (value != value))  # a NaN wins, as it does in PyTorch
            best = tl.where(better, value, best)
            which = tl.where(better, cell, which)
    if AVERAGE:
        best = best / tl.maximum(count, 1.0)[:, None]
    return best, which


@triton.jit(do_not_specialize=SIZES)
def pooling_forward_kernel(
    x, y, chosen, rows, height, width, out_height, out_width, top, left, channels,
    SIZE: tl.constexpr, STRIDE: tl.constexpr, AVERAGE: tl.constexpr,
    TALL: tl.constexpr, WIDE: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """One pixel of the output a row. Of a maximum, `chosen` says which cell of the window it was."""
    pixel = list_pixels(tl.program_id(0), rows, out_height, out_width, TALL, WIDE)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    best, which = compute_pool(
        x, pixel, channel, rows, channels, height, width, out_height, out_width, top, left,
        SIZE, STRIDE, AVERAGE, TALL * WIDE, COLUMNS,
    )  # fmt: skip
    home = pixel[:, None] * channels + channel[None, :]
    written = (pixel < rows)[:, None] & (channel < channels)[None, :]
    if not AVERAGE:
        tl.store(chosen + home, which.to(tl.uint8), mask=written)
    tl.store(y + home, best.to(y.dtype.element_ty), mask=written)


@triton.jit(do_not_specialize=SIZES)
def max_pooling_kernel(
    x, y, rows, height, width, out_height, out_width, top, left, channels,
    SIZE: tl.constexpr, STRIDE: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute maxima alone, for inference: nobody will ask which cell of a window it was."""
    pixel = list_pixels(tl.program_id(0), rows, out_height, out_width, TALL, WIDE)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    best, _ = compute_pool(
        x, pixel, channel, rows, channels, height, width, out_height, out_width, top, left,
        SIZE, STRIDE, False, TALL * WIDE, COLUMNS,
    )  # fmt: skip
    home = pixel[:, None] * channels + channel[None, :]
    written = (pixel < rows)[:, None] & (channel < channels)[None, :]
    tl.store(y + home, best.to(y.dtype.element_ty), mask=written)


@triton.jit(do_not_specialize=SIZES)
def pooling_backward_kernel(
    gradient, chosen, out, rows, height, width, out_height, out_width, top, left, channels, pitch,
    SIZE: tl.constexpr, STRIDE: tl.constexpr, AVERAGE: tl.constexpr,
    TALL: tl.constexpr, WIDE: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """One pixel of the input a row; `pitch` lies between two pixels of the gradient, which may be part of more."""
    pixel = list_pixels(tl.program_id(0), rows, height, width, TALL, WIDE)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (channel < channels)[None, :]
    across = pixel % width
    remaining = pixel // width
    down = remaining % height
    last_row = (down + top) // STRIDE  # of the windows that begin at or before this pixel, the last
    last_column = (across + left) // STRIDE
    windows = ((remaining // height) * out_height + last_row) * out_width + last_column
    grads = windows[:, None] * pitch + channel[None, :]
    marks = windows[:, None] * channels + channel[None, :]
    total = tl.zeros((TALL * WIDE, COLUMNS), tl.float32)
    EACH: tl.constexpr = (SIZE + STRIDE - 1) // STRIDE
    for back in tl.static_range(EACH * EACH):
        row = last_row - back // EACH
        column = last_column - back % EACH
        cell_row = down + top - row * STRIDE
        cell_column = across + left - column * STRIDE
        there = (pixel < rows) & (row >= 0) & (row < out_height) & (column >= 0) & (column < out_width)
        there &= (cell_row < SIZE) & (cell_column < SIZE)
        step = back // EACH * out_width + back % EACH
        seen = there[:, None] & inside
        arrives = tl.load(gradient + grads - step * pitch, mask=seen, other=0.0).to(tl.float32)
        if AVERAGE:
            first_row = row * STRIDE - top
            first_column = column * STRIDE - left
            tall = tl.minimum(first_row + SIZE, height) - tl.maximum(first_row, 0)
            wide = tl.minimum(first_column + SIZE, width) - tl.maximum(first_column, 0)
            total += arrives / tl.maximum(tall * wide, 1).to(tl.float32)[:, None]
        else:
            mark = tl.load(chosen + marks - step * channels, mask=seen, other=255).to(tl.int32)
            total += tl.where(mark == (cell_row * SIZE + cell_column)[:, None], arrives, 0.0)
    home = pixel[:, None] * channels + channel[None, :]
    tl.store(out + home, total.to(out.dtype.element_ty), mask=(pixel < rows)[:, None] & inside)
