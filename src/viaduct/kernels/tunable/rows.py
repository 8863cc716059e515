"""Search space and cases of elementwise kernels over rows of pixels and columns of channels."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

import torch
from torch import Tensor

from viaduct.kernels import halves, norm, terms
from viaduct.kernels.choices import Signature
from viaduct.kernels.norm import Norm, Sums
from viaduct.kernels.sizes import choose_default_tile
from viaduct.kernels.tunable.base import (
    LaunchAndReference,
    Limits,
    RandomTensors,
    Tunable,
    limit_elements,
    read_sizes,
    unpack_signs,
)
from viaduct.search_space import Parameter, Point, Space

ROWS = Parameter("rows", (1, 2, 4, 8, 16, 32, 64))
COLUMNS = Parameter("columns", (32, 64, 128, 256, 512))
WARPS = Parameter("warps", (1, 2, 4, 8))
MAX_ELEMENTS = 64  # of each tensor in a thread: those of three float32 tensors fit into its 255 registers
HINTS = tuple({"rows": rows, "columns": columns, "warps": 4} for rows, columns in ((4, 256), (32, 64), (2, 512)))


def make_space(signature: Signature, limits: Limits) -> Space:
    """Return the search space of an elementwise kernel's tiles."""
    _, channels = read_sizes(signature)

    def limit_tile(point: Point) -> str | None:
        return limit_elements(int(point["rows"]) * int(point["columns"]), point, MAX_ELEMENTS)

    def limit_columns(point: Point) -> str | None:
        columns = int(point["columns"])
        is_wasteful = columns >= 2 * channels and columns > 64
        return f"{columns} columns are twice as many as {channels} channels" if is_wasteful else None

    default = asdict(choose_default_tile(channels))
    return Space((ROWS, COLUMNS, WARPS), (limit_tile, limit_columns), default=default, hints=HINTS)


def compute_scale_shift(x: Tensor, statistics: Norm) -> Tensor:
    return x.float() * statistics.scale + statistics.shift


def prepare_scale_shift(random: RandomTensors, rows: int, channels: int) -> LaunchAndReference:
    x, statistics = random.draw_rows(rows, channels), random.draw_norm(channels)
    reference = compute_scale_shift(x, statistics).relu()
    return lambda: [norm.apply_scale_shift(x, statistics)], lambda: [reference]


def prepare_scale_shift_add(
    random: RandomTensors, rows: int, channels: int, *, has_other_norm: bool
) -> LaunchAndReference:
    x, other = (random.draw_rows(rows, channels) for _ in range(2))
    statistics, other_statistics = (random.draw_norm(channels) for _ in range(2))

    def launch() -> list[Tensor]:
        y, signs = norm.apply_scale_shift_add(x, statistics, other, other_statistics if has_other_norm else None)
        return [y, unpack_signs(signs, channels)]

    def compute() -> list[Tensor]:
        added = compute_scale_shift(other, other_statistics) if has_other_norm else other.float()
        y = (compute_scale_shift(x, statistics) + added).relu()
        return [y, (y.to(x.dtype) > 0).float()]

    return launch, compute


def prepare_input_gradient(random: RandomTensors, rows: int, channels: int) -> LaunchAndReference:
    gradient, x, statistics = (
        random.draw_rows(rows, channels),
        random.draw_rows(rows, channels),
        random.draw_norm(channels),
    )
    sums = Sums(*(torch.randn(2, channels, generator=random.generator) * rows**0.5).to(random.device))

    def compute() -> list[Tensor]:
        masked = torch.where(compute_scale_shift(x, statistics) > 0, gradient.float(), 0.0)
        slope = sums.product / rows * statistics.inverse_deviation
        return [(masked - sums.total / rows - (x.float() - statistics.mean) * slope) * statistics.scale]

    return lambda: [norm.compute_input_gradient(gradient, x, statistics, sums, relu=True)], compute


def prepare_repeat(random: RandomTensors, rows: int, channels: int) -> LaunchAndReference:
    """Return a case for the gradient of a mean over the pixels of an image: each pixel's row is the same."""
    # Pixels of an image: those of usual feature maps (7x7, 8x8, 14x14), else the smallest divisor of the rows.
    times = next(divisor for divisor in (49, 64, 196, *range(2, rows + 1)) if rows % divisor == 0) if rows > 1 else 1
    image_gradients = random.draw_rows(rows // times, channels)
    gradient = image_gradients.as_strided((rows // times, channels, 1, times), (channels, 1, 0, 0))
    expected = image_gradients.repeat_interleave(times, dim=0)
    return lambda: [norm.make_gradient_rows(gradient, gradient.dtype)], lambda: [expected]


def prepare_sum(random: RandomTensors, rows: int, channels: int) -> LaunchAndReference:
    """Return a case for the sum of two batch norms' outputs, read through a ReLU."""
    xs, norms = [random.draw_rows(rows, channels) for _ in range(2)], [random.draw_norm(channels) for _ in range(2)]
    images = tuple(x.view(1, 1, rows, channels).permute(0, 3, 1, 2) for x in xs)
    saved = [terms.SavedTerm((1, channels, 1, rows), x, statistics) for x, statistics in zip(xs, norms, strict=True)]

    def launch() -> list[Tensor]:
        positive = torch.empty_like(xs[0])
        signs = terms.allocate_signs(positive)
        terms.launch_sum(saved, images, raw=None, positive=positive, signs=signs, size=(1, 1, rows))
        return [positive, unpack_signs(signs, channels)]

    def compute() -> list[Tensor]:
        total = compute_scale_shift(xs[0], norms[0]) + compute_scale_shift(xs[1], norms[1])
        return [total.relu(), (total.to(xs[0].dtype) > 0).float()]

    return launch, compute


def prepare_gather_halves(random: RandomTensors, rows: int, channels: int) -> LaunchAndReference:
    x = random.draw_images(1, channels, 2, 2 * rows)
    expected = torch.stack([x[0, :, row, row::2].t() for row in range(2)])
    return lambda: [halves.gather(x)], lambda: [expected]


def prepare_scatter_halves(random: RandomTensors, width: int, channels: int) -> LaunchAndReference:
    # An image of a single row has no odd pixels (odd row and odd column), so `odd` is not part of the result.
    even, odd = (random.draw_rows((width + 1) // 2, channels) for _ in range(2))
    expected = torch.zeros((1, channels, 1, width), dtype=even.dtype, device=random.device)
    expected[0, :, 0, ::2] = even.t()
    return lambda: [halves.scatter(even, odd, (1, channels, 1, width))], lambda: [expected]


TUNABLES = [
    Tunable("scale_shift", make_space, prepare_scale_shift),
    Tunable("scale_shift_add", make_space, partial(prepare_scale_shift_add, has_other_norm=False)),
    Tunable("scale_shift_add_two", make_space, partial(prepare_scale_shift_add, has_other_norm=True)),
    Tunable("batch_norm_input_gradient", make_space, prepare_input_gradient),
    Tunable("repeat_rows", make_space, prepare_repeat),
    Tunable("sum_terms", make_space, prepare_sum),
    Tunable("gather_halves", make_space, prepare_gather_halves),
    Tunable("scatter_halves", make_space, prepare_scatter_halves),
]
