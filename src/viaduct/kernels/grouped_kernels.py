"""3x3 convolutions in many small groups, as ResNeXt has them.

Matrix units want blocks wider than a group of 4 channels. So WIDTH channels, of several groups, are multiplied at once
with weights that are 0 between groups: more arithmetic, which is there, for fewer and larger reads, which are not.
Rows are pixels, columns are channels.

Places are counted in 32 bits and once for all nine taps, which then differ by a number: working them out anew in 64
bits took longer than the arithmetic.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def spread_kernel(weight, wide, per_group, WIDTH: tl.constexpr):
    """[channels, 3, 3, per_group] to the wide form: [channels / WIDTH, 9, WIDTH outputs, WIDTH inputs]."""
    block = tl.program_id(0)
    tap = tl.program_id(1)
    output = tl.arange(0, WIDTH)[:, None]
    inner = tl.arange(0, WIDTH)[None, :]
    first = output // per_group * per_group  # of the group's inputs within the block
    mine = (inner >= first) & (inner < first + per_group)
    place = ((block * WIDTH + output) * 9 + tap) * per_group + inner - first
    value = tl.load(weight + place, mask=mine, other=0.0)
    tl.store(wide + ((block * 9 + tap) * WIDTH + output) * WIDTH + inner, value)


@triton.jit
def grouped_backward_kernel(
    gradient, wide, out, pixels, height, width, half_height, half_width, out_height, out_width, top, left_pad, channels,
    STRIDE: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """At the input. With stride 2 a program has pixels of one kind: even or odd row, even or odd column, which all read
    the same taps."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    block = tl.program_id(1)
    column = tl.arange(0, WIDTH)
    odd_row = tl.program_id(2) // 2
    odd_column = tl.program_id(2) % 2
    across = index % half_width * STRIDE + odd_column
    rest = index // half_width
    down = rest % half_height * STRIDE + odd_row
    picture = rest // half_height
    valid = (index < pixels) & (down < height) & (across < width)
    square = column[:, None] * WIDTH + column[None, :]
    wide += block * 9 * WIDTH * WIDTH
    # The pixel of the gradient that the first tap reads; of the others, so many rows and columns before it.
    far_row = (down + top) // STRIDE
    far_place = (across + left_pad) // STRIDE
    first = ((picture * out_height + far_row) * out_width + far_place) * channels + block * WIDTH
    places = first[:, None] + column[None, :]
    total = tl.zeros((BLOCK, WIDTH), tl.float32)
    for tap in tl.static_range(9):
        mine = True
        if STRIDE == 2:
            mine = ((odd_row + top - tap // 3) % 2 == 0) & ((odd_column + left_pad - tap % 3) % 2 == 0)
        if mine:
            # How many pixels back it reads: the taps that have its turn are a whole number of strides away.
            back_row = (tap // 3 - (odd_row + top) % STRIDE) // STRIDE
            back_place = (tap % 3 - (odd_column + left_pad) % STRIDE) // STRIDE
            row = far_row - back_row
            place = far_place - back_place
            there = valid & (row >= 0) & (row < out_height) & (place >= 0) & (place < out_width)
            seen = tl.load(
                gradient + places - (back_row * out_width + back_place) * channels, mask=there[:, None], other=0.0
            )
            total = tl.dot(seen, tl.load(wide + tap * WIDTH * WIDTH + square), total)
    home = ((picture * height + down) * width + across) * channels + block * WIDTH
    tl.store(out + home[:, None] + column[None, :], total.to(out.dtype.element_ty), mask=valid[:, None])


@triton.jit
def grouped_weight_kernel(
    x, gradient, parts, rows, height, width, out_height, out_width, top, left_pad, channels, tiles,
    STRIDE: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """For each program: its pixels, one block of channels, one row of the window: [WIDTH outputs, WIDTH inputs] x 3."""
    program = tl.program_id(0)
    block = tl.program_id(1)
    line = tl.program_id(2)
    column = tl.arange(0, WIDTH)
    one = tl.zeros((WIDTH, WIDTH), tl.float32)
    two = tl.zeros((WIDTH, WIDTH), tl.float32)
    three = tl.zeros((WIDTH, WIDTH), tl.float32)
    for tile in range(program, tiles, tl.num_programs(0)):
        pixel = tile * BLOCK + tl.arange(0, BLOCK)
        valid = pixel < rows
        across = pixel % out_width * STRIDE - left_pad
        rest = pixel // out_width
        row = rest % out_height * STRIDE - top + line
        there = valid & (row >= 0) & (row < height)
        home = pixel[:, None] * channels + (block * WIDTH + column)[None, :]
        turned = tl.trans(tl.load(gradient + home, mask=valid[:, None], other=0.0))
        start = ((rest // out_height * height + row) * width + across) * channels + block * WIDTH
        source = x + (start[:, None] + column[None, :])
        first = (there & (across >= 0) & (across < width))[:, None]
        second = (there & (across + 1 >= 0) & (across + 1 < width))[:, None]
        third = (there & (across + 2 >= 0) & (across + 2 < width))[:, None]
        one = tl.dot(turned, tl.load(source, mask=first, other=0.0), one)
        two = tl.dot(turned, tl.load(source + channels, mask=second, other=0.0), two)
        three = tl.dot(turned, tl.load(source + 2 * channels, mask=third, other=0.0), three)
    home = ((program.to(tl.int64) * tl.num_programs(1) + block) * 9 + line * 3) * WIDTH * WIDTH
    place = parts + home + column[:, None] * WIDTH + column[None, :]
    tl.store(place, one)
    tl.store(place + WIDTH * WIDTH, two)
    tl.store(place + 2 * WIDTH * WIDTH, three)
