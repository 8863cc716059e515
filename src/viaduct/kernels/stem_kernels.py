"""Stem: 7x7 convolution with stride 2 over three channels, which libraries compute slowly.

The images are folded: a block of 2x2 pixels becomes one pixel of 12 channels, padded with zeros to 16. The convolution
is then 4x4 with stride 1, and each row of its window is 64 consecutive elements. BLOCK is the number of pixels or
windows that a program handles at once.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def fold_kernel(x, folded, pixels, height, width, folded_height, folded_width, padding, BLOCK: tl.constexpr):
    """Fold NHWC images of 3 channels, with `padding` folded pixels of zeros above and to the left."""
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    channel = tl.arange(0, 16)
    folded_column = pixel % folded_width - padding
    remaining = pixel // folded_width
    folded_row = remaining % folded_height - padding
    image = remaining // folded_height
    row = 2 * folded_row[:, None] + (channel // 6)[None, :]
    column = 2 * folded_column[:, None] + (channel % 6 // 3)[None, :]
    in_image = (row >= 0) & (row < height) & (column >= 0) & (column < width) & (channel < 12)[None, :]
    in_image &= (pixel < pixels)[:, None]
    offset = ((image[:, None].to(tl.int64) * height + row) * width + column) * 3 + (channel % 3)[None, :]
    value = tl.load(x + offset, mask=in_image, other=0.0)
    folded_offset = pixel[:, None].to(tl.int64) * 16 + channel[None, :]
    tl.store(folded + folded_offset, value.to(folded.dtype.element_ty), mask=(pixel < pixels)[:, None])


@triton.jit
def stem_forward_kernel(
    folded, weight, pivot, y, means, squared_deviations, counts, rows, out_height, out_width, folded_height,
    folded_width, tiles, FILTERS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute y[pixel, filter] for all `rows` output pixels. Each program also stores the statistics of its pixels:
    count, mean and squared deviations, summed relative to `pivot`, the mean of earlier batches."""
    program = tl.program_id(0)
    filters = tl.arange(0, FILTERS)
    window_offset = tl.arange(0, 64)
    pivots = tl.load(pivot + filters)
    deviations = tl.zeros((BLOCK, FILTERS), tl.float32)
    square_part = tl.zeros((BLOCK, FILTERS), tl.float32)
    count = 0.0
    for tile in range(program, tiles, tl.num_programs(0)):
        pixel = tile * BLOCK + tl.arange(0, BLOCK)
        valid = pixel < rows
        out_column = pixel % out_width
        remaining = pixel // out_width
        corner = (remaining // out_height * folded_height + remaining % out_height) * folded_width + out_column
        window = folded + (corner[:, None] * 16 + window_offset[None, :])
        total = tl.zeros((BLOCK, FILTERS), tl.float32)
        for row_index in range(4):
            window_row = tl.load(window + row_index * folded_width * 16, mask=valid[:, None], other=0.0)
            weight_part = tl.load(weight + (row_index * 64 + window_offset)[:, None] * FILTERS + filters[None, :])
            total = tl.dot(window_row, weight_part, total)
        rounded = total.to(y.dtype.element_ty)
        tl.store(y + pixel[:, None] * FILTERS + filters[None, :], rounded, mask=valid[:, None])
        deviation = tl.where(valid[:, None], rounded.to(tl.float32) - pivots[None, :], 0.0)
        deviations += deviation
        square_part += deviation * deviation
        count += tl.minimum(rows - tile * BLOCK, BLOCK).to(tl.float32)
    deviation_sum = tl.sum(deviations, 0)
    mean = deviation_sum / tl.maximum(count, 1.0)
    tl.store(means + program * FILTERS + filters, mean + pivots)
    tl.store(squared_deviations + program * FILTERS + filters, tl.sum(square_part, 0) - deviation_sum * mean)
    tl.store(counts + program, count)


@triton.jit
def pool_forward_kernel(
    x, scale, shift, pooled, argmax, max_input, rows, height, width, pooled_height, pooled_width, padding,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute the 3x3 max pool with stride 2 of relu(scale * x + shift), for `rows` output pixels. `argmax` is the
    index within the window, 9 if all values are 0 behind the ReLU; `max_input` is the x of the maximum."""
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    channel = tl.arange(0, CHANNELS)
    valid = pixel < rows
    window_column = 2 * (pixel % pooled_width) - padding
    remaining = pixel // pooled_width
    window_row = 2 * (remaining % pooled_height) - padding
    first_offset = ((remaining // pooled_height * height + window_row) * width + window_column) * CHANNELS
    offsets = first_offset[:, None] + channel[None, :]
    scales = tl.load(scale + channel)
    shifts = tl.load(shift + channel)
    best = tl.zeros((BLOCK, CHANNELS), tl.float32)  # nothing is below 0 behind a ReLU
    best_cell = tl.full((BLOCK, CHANNELS), 9, tl.int32)
    best_input = tl.zeros((BLOCK, CHANNELS), tl.float32)
    for cell in tl.static_range(9):
        row = window_row + cell // 3
        column = window_column + cell % 3
        in_bounds = valid & (row >= 0) & (row < height) & (column >= 0) & (column < width)
        cell_offset = (cell // 3 * width + cell % 3) * CHANNELS
        raw = tl.load(x + cell_offset + offsets, mask=in_bounds[:, None], other=0.0).to(tl.float32)
        value = raw * scales[None, :] + shifts[None, :]
        value = value.to(pooled.dtype.element_ty).to(tl.float32)  # rounded like a stored tensor
        better = in_bounds[:, None] & ((value > best) | (value != value))
        best = tl.where(better, value, best)
        best_cell = tl.where(better, cell, best_cell)
        best_input = tl.where(better, raw, best_input)
    offset = pixel[:, None] * CHANNELS + channel[None, :]
    tl.store(pooled + offset, best.to(pooled.dtype.element_ty), mask=valid[:, None])
    tl.store(argmax + offset, best_cell.to(tl.uint8), mask=valid[:, None])
    tl.store(max_input + offset, best_input.to(max_input.dtype.element_ty), mask=valid[:, None])


@triton.jit
def stem_sums_kernel(
    gradient, argmax, max_input, mean, inverse_deviation, part_sums, part_products, windows, tiles,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sum the gradient w.r.t. the norm's output, and the gradient times the normalised input, for each channel; each
    program stores its part. The gradient of a window of the pool goes to one pixel, so the sum is over windows, a
    quarter as many as pixels."""
    program = tl.program_id(0)
    channel = tl.arange(0, CHANNELS)
    mean_values = tl.load(mean + channel)
    total = tl.zeros((BLOCK, CHANNELS), tl.float32)
    product = tl.zeros((BLOCK, CHANNELS), tl.float32)
    for tile in range(program, tiles, tl.num_programs(0)):
        window = tile * BLOCK + tl.arange(0, BLOCK)
        valid = (window < windows)[:, None]
        offset = window[:, None] * CHANNELS + channel[None, :]
        window_gradient = tl.load(gradient + offset, mask=valid, other=0.0).to(tl.float32)
        window_gradient = tl.where(tl.load(argmax + offset, mask=valid, other=9) < 9, window_gradient, 0.0)
        value = tl.load(max_input + offset, mask=valid, other=0.0).to(tl.float32)
        total += window_gradient
        product += window_gradient * (value - mean_values[None, :])
    tl.store(part_sums + program * CHANNELS + channel, tl.sum(total, 0))
    tl.store(part_products + program * CHANNELS + channel, tl.sum(product, 0) * tl.load(inverse_deviation + channel))


@triton.jit
def stem_input_gradient_kernel(
    gradient, argmax, x, mean, inverse_deviation, scale, sums, products, out, blocks, rows, height, width,
    pooled_height, pooled_width, padding, CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute the gradient w.r.t. the norm's input, through pool, ReLU and norm. A program handles BLOCK blocks of 2x2
    pixels. The pixels of such a block are in up to four windows of the pool: the one that begins in the block, and
    those above, left, and above left. `rows` is the number of pixels."""
    block = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    channel = tl.arange(0, CHANNELS)
    block_column = block % (width // 2 + 1)
    remaining = block // (width // 2 + 1)
    block_row = remaining % (height // 2 + 1)
    image = remaining // (height // 2 + 1)
    valid = block < blocks
    windows = ((image * pooled_height + block_row) * pooled_width + block_column)[:, None] * CHANNELS + channel[None, :]
    corner = (image * height + 2 * block_row - padding) * width + 2 * block_column - padding
    out_offsets = corner[:, None] * CHANNELS + channel[None, :]
    mean_values = tl.load(mean + channel)
    inverse_deviations = tl.load(inverse_deviation + channel)
    scales = tl.load(scale + channel)
    mean_gradient = tl.load(sums + channel) / rows
    slope = tl.load(products + channel) / rows * inverse_deviations
    for pixel in tl.static_range(4):
        row = 2 * block_row - padding + pixel // 2
        column = 2 * block_column - padding + pixel % 2
        pixel_gradient = tl.zeros((BLOCK, CHANNELS), tl.float32)
        for window in tl.static_range(4):
            # Window 0 begins in the block; 1 is to its left, 2 above, 3 above and to the left.
            if (window // 2 == 0 or pixel // 2 == 0) and (window % 2 == 0 or pixel % 2 == 0):
                window_row = block_row - window // 2
                window_column = block_column - window % 2
                in_bounds = valid & (window_row >= 0) & (window_row < pooled_height)
                in_bounds &= (window_column >= 0) & (window_column < pooled_width)
                offset = windows - (window // 2 * pooled_width + window % 2) * CHANNELS
                best_cell = tl.load(argmax + offset, mask=in_bounds[:, None], other=9).to(tl.int32)
                cell = (pixel // 2 + 2 * (window // 2)) * 3 + pixel % 2 + 2 * (window % 2)
                window_gradient = tl.load(gradient + offset, mask=in_bounds[:, None], other=0.0).to(tl.float32)
                pixel_gradient += tl.where(best_cell == cell, window_gradient, 0.0)
        inside = (valid & (row >= 0) & (row < height) & (column >= 0) & (column < width))[:, None]
        out_offset = out_offsets + (pixel // 2 * width + pixel % 2) * CHANNELS
        value = tl.load(x + out_offset, mask=inside, other=0.0).to(tl.float32)
        centred = pixel_gradient - mean_gradient[None, :] - (value - mean_values[None, :]) * slope[None, :]
        result = centred * scales[None, :]
        tl.store(out + out_offset, result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def stem_weight_gradient_kernel(
    norm_gradient, folded, parts, rows, out_height, out_width, folded_height, folded_width, tiles,
    FILTERS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute parts of the gradient w.r.t. the folded weight; each program sums over some of the `rows` output pixels,
    for one row of the window."""
    program = tl.program_id(0)
    row_index = tl.program_id(1)
    filters = tl.arange(0, FILTERS)
    window_offset = tl.arange(0, 64)
    total = tl.zeros((FILTERS, 64), tl.float32)
    for tile in range(program, tiles, tl.num_programs(0)):
        pixel = tile * BLOCK + tl.arange(0, BLOCK)
        valid = (pixel < rows)[:, None]
        remaining = pixel // out_width
        image, out_row = remaining // out_height, remaining % out_height
        corner = (image * folded_height + out_row + row_index) * folded_width + pixel % out_width
        window_row = tl.load(folded + (corner[:, None] * 16 + window_offset[None, :]), mask=valid, other=0.0)
        pixel_gradient = tl.load(norm_gradient + (pixel[:, None] * FILTERS + filters[None, :]), mask=valid, other=0.0)
        total = tl.dot(tl.trans(pixel_gradient), window_row, total)
    out_offset = program.to(tl.int64) * FILTERS * 256 + filters[:, None] * 256 + row_index * 64 + window_offset[None, :]
    tl.store(parts + out_offset, total)


@triton.jit
def stem_inference_kernel(
    folded, weight, bias, y, rows, out_height, out_width, folded_height, folded_width,
    FILTERS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute y[pixel, filter] = relu(convolution + bias) for all `rows` output pixels."""
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    filters = tl.arange(0, FILTERS)
    window_offset = tl.arange(0, 64)
    valid = pixel < rows
    out_column = pixel % out_width
    remaining = pixel // out_width
    corner = (remaining // out_height * folded_height + remaining % out_height) * folded_width + out_column
    window = folded + (corner[:, None] * 16 + window_offset[None, :])
    total = tl.zeros((BLOCK, FILTERS), tl.float32)
    for row_index in tl.static_range(4):
        window_row = tl.load(window + row_index * folded_width * 16, mask=valid[:, None], other=0.0)
        weight_part = tl.load(weight + (row_index * 64 + window_offset)[:, None] * FILTERS + filters[None, :])
        total = tl.dot(window_row, weight_part, total)
    total += tl.load(bias + filters).to(tl.float32)[None, :]
    positive = tl.maximum(total, 0.0, propagate_nan=tl.PropagateNan.ALL).to(y.dtype.element_ty)
    tl.store(y + pixel[:, None] * FILTERS + filters[None, :], positive, mask=valid[:, None])
