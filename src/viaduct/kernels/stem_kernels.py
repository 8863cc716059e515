"""The stem: 7x7 with stride 2 over three channels, at which no library is fast.

Blocks of 2x2 pixels become one pixel of 12 channels, and 4 of zeros; then the convolution is 4x4 with stride 1, and
what a row of its window reads lies in one piece of 64 numbers.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def fold_kernel(x, folded, pixels, height, width, rows_to, columns_to, before, BLOCK: tl.constexpr):
    """Images NHWC of 3 channels to blocks of 16 (12 used), with `before` blocks of zeros above and to the left."""
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    channel = tl.arange(0, 16)
    across = pixel % columns_to - before
    remaining = pixel // columns_to
    down = remaining % rows_to - before
    image = remaining // rows_to
    row = 2 * down[:, None] + (channel // 6)[None, :]
    column = 2 * across[:, None] + (channel % 6 // 3)[None, :]
    real = (row >= 0) & (row < height) & (column >= 0) & (column < width) & (channel < 12)[None, :]
    real &= (pixel < pixels)[:, None]
    offset = ((image[:, None].to(tl.int64) * height + row) * width + column) * 3 + (channel % 3)[None, :]
    value = tl.load(x + offset, mask=real, other=0.0)
    there = (pixel < pixels)[:, None] & (channel >= 0)[None, :]
    tl.store(
        folded + pixel[:, None].to(tl.int64) * 16 + channel[None, :], value.to(folded.dtype.element_ty), mask=there
    )


@triton.jit
def stem_forward_kernel(
    folded, weight, pivot, y, means, squares, counts, rows, out_height, out_width, rows_to, columns_to, tiles,
    FILTERS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """y[pixel, filter], and the statistics of each filter, taken relative to `pivot`, a mean of earlier batches."""
    program = tl.program_id(0)
    filters = tl.arange(0, FILTERS)
    piece = tl.arange(0, 64)
    near = tl.load(pivot + filters)
    total_part = tl.zeros((BLOCK, FILTERS), tl.float32)
    square_part = tl.zeros((BLOCK, FILTERS), tl.float32)
    seen = 0.0
    for tile in range(program, tiles, tl.num_programs(0)):
        pixel = tile * BLOCK + tl.arange(0, BLOCK)
        valid = pixel < rows
        across = pixel % out_width
        remaining = pixel // out_width
        corner = (remaining // out_height * rows_to + remaining % out_height) * columns_to + across
        window = folded + (corner[:, None] * 16 + piece[None, :])
        total = tl.zeros((BLOCK, FILTERS), tl.float32)
        for down in range(4):
            seen_here = tl.load(window + down * columns_to * 16, mask=valid[:, None], other=0.0)
            part = tl.load(weight + (down * 64 + piece)[:, None] * FILTERS + filters[None, :])
            total = tl.dot(seen_here, part, total)
        rounded = total.to(y.dtype.element_ty)
        tl.store(y + pixel[:, None] * FILTERS + filters[None, :], rounded, mask=valid[:, None])
        apart = tl.where(valid[:, None], rounded.to(tl.float32) - near[None, :], 0.0)
        total_part += apart
        square_part += apart * apart
        seen += tl.minimum(rows - tile * BLOCK, BLOCK).to(tl.float32)
    added = tl.sum(total_part, 0)
    mean = added / tl.maximum(seen, 1.0)
    tl.store(means + program * FILTERS + filters, mean + near)
    tl.store(squares + program * FILTERS + filters, tl.sum(square_part, 0) - added * mean)
    tl.store(counts + program, seen)


@triton.jit
def pool_forward_kernel(
    x, scale, shift, pooled, chosen, picked, rows, height, width, pooled_height, pooled_width, before,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """3x3 with stride 2 over relu(scale * x + shift). `chosen` says which of the nine it was, 9 where the ReLU cut all
    of them off; `picked` is the x of that one."""
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    channel = tl.arange(0, CHANNELS)
    valid = pixel < rows
    across = 2 * (pixel % pooled_width) - before
    remaining = pixel // pooled_width
    down = 2 * (remaining % pooled_height) - before
    first = ((remaining // pooled_height * height + down) * width + across) * CHANNELS
    offsets = first[:, None] + channel[None, :]
    a = tl.load(scale + channel)
    b = tl.load(shift + channel)
    best = tl.zeros((BLOCK, CHANNELS), tl.float32)  # after a ReLU nothing lies below
    which = tl.full((BLOCK, CHANNELS), 9, tl.int32)
    source = tl.zeros((BLOCK, CHANNELS), tl.float32)
    for cell in tl.static_range(9):
        row = down + cell // 3
        column = across + cell % 3
        there = valid & (row >= 0) & (row < height) & (column >= 0) & (column < width)
        raw = tl.load(x + (cell // 3 * width + cell % 3) * CHANNELS + offsets, mask=there[:, None], other=0.0).to(
            tl.float32
        )
        value = (raw * a[None, :] + b[None, :]).to(pooled.dtype.element_ty).to(tl.float32)  # as it would be stored
        better = there[:, None] & (value > best)
        best = tl.where(better, value, best)
        which = tl.where(better, cell, which)
        source = tl.where(better, raw, source)
    offset = pixel[:, None] * CHANNELS + channel[None, :]
    tl.store(pooled + offset, best.to(pooled.dtype.element_ty), mask=valid[:, None])
    tl.store(chosen + offset, which.to(tl.uint8), mask=valid[:, None])
    tl.store(picked + offset, source.to(picked.dtype.element_ty), mask=valid[:, None])


@triton.jit
def stem_sums_kernel(
    gradient, chosen, picked, mean, inverse, sums, products, rows, tiles, CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sum the gradient of the norm's output, and it times the normalised input, for each channel. A
    window's gradient goes to one pixel, so windows are counted, a quarter as many."""
    program = tl.program_id(0)
    channel = tl.arange(0, CHANNELS)
    centre = tl.load(mean + channel)
    total = tl.zeros((BLOCK, CHANNELS), tl.float32)
    product = tl.zeros((BLOCK, CHANNELS), tl.float32)
    for tile in range(program, tiles, tl.num_programs(0)):
        window = tile * BLOCK + tl.arange(0, BLOCK)
        valid = (window < rows)[:, None]
        offset = window[:, None] * CHANNELS + channel[None, :]
        arrives = tl.load(gradient + offset, mask=valid, other=0.0).to(tl.float32)
        arrives = tl.where(tl.load(chosen + offset, mask=valid, other=9) < 9, arrives, 0.0)
        value = tl.load(picked + offset, mask=valid, other=0.0).to(tl.float32)
        total += arrives
        product += arrives * (value - centre[None, :])
    tl.store(sums + program * CHANNELS + channel, tl.sum(total, 0))
    tl.store(products + program * CHANNELS + channel, tl.sum(product, 0) * tl.load(inverse + channel))


@triton.jit
def stem_input_kernel(
    gradient, chosen, x, mean, inverse, scale, sums, products, out, blocks, rows, height, width, pooled_height,
    pooled_width, before, CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient at the norm's input, through pool, ReLU and norm. Four pixels at a time share what they look at:
    the windows that begin with the first of them, and those before it."""
    block = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    channel = tl.arange(0, CHANNELS)
    across = block % (width // 2 + 1)
    remaining = block // (width // 2 + 1)
    down = remaining % (height // 2 + 1)
    image = remaining // (height // 2 + 1)
    valid = block < blocks
    windows = ((image * pooled_height + down) * pooled_width + across)[:, None] * CHANNELS + channel[None, :]
    homes = ((image * height + 2 * down - before) * width + 2 * across - before)[:, None] * CHANNELS + channel[None, :]
    centre = tl.load(mean + channel)
    inv = tl.load(inverse + channel)
    scaled = tl.load(scale + channel)
    steady = tl.load(sums + channel) / rows
    slope = tl.load(products + channel) / rows * inv
    for pixel in tl.static_range(4):
        row = 2 * down - before + pixel // 2
        column = 2 * across - before + pixel % 2
        arrives = tl.zeros((BLOCK, CHANNELS), tl.float32)
        for window in tl.static_range(4):
            # Counted from the window that begins with the block: 0 is that one, then to the left, above, both.
            if (window // 2 == 0 or pixel // 2 == 0) and (window % 2 == 0 or pixel % 2 == 0):
                above = down - window // 2
                left = across - window % 2
                there = valid & (above >= 0) & (above < pooled_height) & (left >= 0) & (left < pooled_width)
                offset = windows - (window // 2 * pooled_width + window % 2) * CHANNELS
                which = tl.load(chosen + offset, mask=there[:, None], other=9).to(tl.int32)
                cell = (pixel // 2 + 2 * (window // 2)) * 3 + pixel % 2 + 2 * (window % 2)
                change = tl.load(gradient + offset, mask=there[:, None], other=0.0).to(tl.float32)
                arrives += tl.where(which == cell, change, 0.0)
        inside = (valid & (row >= 0) & (row < height) & (column >= 0) & (column < width))[:, None]
        home = homes + (pixel // 2 * width + pixel % 2) * CHANNELS
        value = tl.load(x + home, mask=inside, other=0.0).to(tl.float32)
        result = (arrives - steady[None, :] - (value - centre[None, :]) * slope[None, :]) * scaled[None, :]
        tl.store(out + home, result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def stem_weight_kernel(
    change, folded, parts, rows, height, width, rows_to, columns_to, tiles, FILTERS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of the weights, for each program its part of the pixels and one row of the window."""
    program = tl.program_id(0)
    down = tl.program_id(1)
    filters = tl.arange(0, FILTERS)
    piece = tl.arange(0, 64)
    total = tl.zeros((FILTERS, 64), tl.float32)
    for tile in range(program, tiles, tl.num_programs(0)):
        pixel = tile * BLOCK + tl.arange(0, BLOCK)
        valid = (pixel < rows)[:, None]
        remaining = pixel // width
        corner = (remaining // height * rows_to + remaining % height + down) * columns_to + pixel % width
        seen = tl.load(folded + (corner[:, None] * 16 + piece[None, :]), mask=valid, other=0.0)
        arrives = tl.load(change + (pixel[:, None] * FILTERS + filters[None, :]), mask=valid, other=0.0)
        total = tl.dot(tl.trans(arrives), seen, total)
    home = program.to(tl.int64) * FILTERS * 256 + filters[:, None] * 256 + down * 64 + piece[None, :]
    tl.store(parts + home, total)


@triton.jit
def stem_inference_kernel(
    folded, weight, bias, y, rows, out_height, out_width, rows_to, columns_to,
    FILTERS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute y[pixel, filter] = relu(convolution + bias)."""
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    filters = tl.arange(0, FILTERS)
    piece = tl.arange(0, 64)
    valid = pixel < rows
    across = pixel % out_width
    remaining = pixel // out_width
    corner = (remaining // out_height * rows_to + remaining % out_height) * columns_to + across
    window = folded + (corner[:, None] * 16 + piece[None, :])
    total = tl.zeros((BLOCK, FILTERS), tl.float32)
    for down in tl.static_range(4):
        seen_here = tl.load(window + down * columns_to * 16, mask=valid[:, None], other=0.0)
        part = tl.load(weight + (down * 64 + piece)[:, None] * FILTERS + filters[None, :])
        total = tl.dot(seen_here, part, total)
    total += tl.load(bias + filters).to(tl.float32)[None, :]
    made = tl.maximum(total, 0.0).to(y.dtype.element_ty)
    tl.store(y + pixel[:, None] * FILTERS + filters[None, :], made, mask=valid[:, None])
