"""Elementwise kernels over rows of pixels and columns of channels."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

import torch
from torch import Tensor

from viaduct.kernels import halves, norm, terms
from viaduct.kernels.choices import Key, Signature
from viaduct.kernels.norm import Norm, Sums
from viaduct.kernels.sizes import choose_default_tile
from viaduct.kernels.tunable.base import Case, Limits, Tunable, limit_numbers, make_draw, read_sizes, unpack_signs
from viaduct.search_space import Parameter, Point, Space

ROWS = Parameter("rows", (1, 2, 4, 8, 16, 32, 64))
COLUMNS = Parameter("columns", (32, 64, 128, 256, 512))
WARPS = Parameter("warps", (1, 2, 4, 8))
MAX_NUMBERS = 64  # numbers of a tensor in a thread: three float32 tensors fit into its 255 registers
HINTS = tuple({"rows": rows, "columns": columns, "warps": 4} for rows, columns in ((4, 256), (32, 64), (2, 512)))


def make_space(signature: Signature, limits: Limits) -> Space:
    """Return the space of an elementwise kernel's tiles."""
    _, channels = read_sizes(signature)[:2]

    def limit_tile(point: Point) -> str | None:
        return limit_numbers(int(point["rows"]) * int(point["columns"]), point, MAX_NUMBERS)

    def limit_columns(point: Point) -> str | None:
        columns = int(point["columns"])
        is_wasteful = columns >= 2 * channels and columns > 64
        return f"{columns} columns are twice as many as {channels} channels" if is_wasteful else None

    default = asdict(choose_default_tile(channels))
    return Space((ROWS, COLUMNS, WARPS), (limit_tile, limit_columns), default=default, hints=HINTS)


def compute_scale_shift(x: Tensor, statistics: Norm) -> Tensor:
    return x.float() * statistics.scale + statistics.shift


def make_scale_shift(key: Key, signature: Signature, device: torch.device) -> Case:
    draw = make_draw(signature, device)
    rows, channels = read_sizes(signature)
    x, statistics = draw.rows(rows, channels), draw.norm(channels)
    reference = compute_scale_shift(x, statistics).relu()
    return Case(key, lambda: [norm.apply_scale_shift(x, statistics)], lambda: [reference])


def make_scale_shift_add(key: Key, signature: Signature, device: torch.device, *, has_other_norm: bool) -> Case:
    draw = make_draw(signature, device)
    rows, channels = read_sizes(signature)
    x, other, statistics, own = *(draw.rows(rows, channels) for _ in range(2)), draw.norm(channels), draw.norm(channels)

    def launch() -> list[Tensor]:
        y, signs = norm.apply_scale_shift_add(x, statistics, other, own if has_other_norm else None)
        return [y, unpack_signs(signs, channels)]

    def compute() -> list[Tensor]:
        added = compute_scale_shift(other, own) if has_other_norm else other.float()
        y = (compute_scale_shift(x, statistics) + added).relu()
        return [y, (y.to(x.dtype) > 0).float()]

    return Case(key, launch, compute)


def make_input_gradient(key: Key, signature: Signature, device: torch.device) -> Case:
    draw = make_draw(signature, device)
    rows, channels = read_sizes(signature)
    gradient, x, statistics = draw.rows(rows, channels), draw.rows(rows, channels), draw.norm(channels)
    sums = Sums(*(torch.randn(2, channels, generator=draw.generator) * rows**0.5).to(device))

    def compute() -> list[Tensor]:
        masked = torch.where(compute_scale_shift(x, statistics) > 0, gradient.float(), 0.0)
        slope = sums.product / rows * statistics.inverse
        return [(masked - sums.total / rows - (x.float() - statistics.mean) * slope) * statistics.scale]

    return Case(key, lambda: [norm.compute_input_gradient(gradient, x, statistics, sums, relu=True)], compute)


def make_repeat(key: Key, signature: Signature, device: torch.device) -> Case:
    """Return a case for the gradient of a mean over pixels, written as rows."""
    rows, channels = read_sizes(signature)
    times = next(divisor for divisor in (49, 64, 196, *range(2, rows + 1)) if rows % divisor == 0) if rows > 1 else 1
    each = make_draw(signature, device).rows(rows // times, channels)
    gradient = each.as_strided((rows // times, channels, 1, times), (channels, 1, 0, 0))
    return Case(
        key, lambda: [norm.make_gradient_rows(gradient, each.dtype)], lambda: [each.repeat_interleave(times, dim=0)]
    )


def make_sum(key: Key, signature: Signature, device: torch.device) -> Case:
    """Return a case for the sum of two norms, read through a ReLU."""
    draw = make_draw(signature, device)
    rows, channels = read_sizes(signature)
    xs, norms = [draw.rows(rows, channels) for _ in range(2)], [draw.norm(channels) for _ in range(2)]
    images = tuple(x.view(1, 1, rows, channels).permute(0, 3, 1, 2) for x in xs)
    saved = [terms.SavedTerm((1, channels, 1, rows), x, statistics) for x, statistics in zip(xs, norms, strict=True)]

    def launch() -> list[Tensor]:
        positive = torch.empty_like(xs[0])
        signs = terms.allocate_signs(positive)
        terms.launch_sum(saved, images, None, positive, signs, (1, 1, rows))
        return [positive, unpack_signs(signs, channels)]

    def compute() -> list[Tensor]:
        total = compute_scale_shift(xs[0], norms[0]) + compute_scale_shift(xs[1], norms[1])
        return [total.relu(), (total.to(xs[0].dtype) > 0).float()]

    return Case(key, launch, compute)


def make_gather_halves(key: Key, signature: Signature, device: torch.device) -> Case:
    rows, channels = read_sizes(signature)
    x = make_draw(signature, device).images(1, channels, 2, 2 * rows)
    expected = torch.stack([x[0, :, row, row::2].t() for row in range(2)])
    return Case(key, lambda: [halves.gather(x)], lambda: [expected])


def make_scatter_halves(key: Key, signature: Signature, device: torch.device) -> Case:
    rows, channels = read_sizes(signature)
    draw, width = make_draw(signature, device), rows
    even, odd = (draw.rows((width + 1) // 2, channels) for _ in range(2))
    expected = torch.zeros((1, channels, 1, width), dtype=even.dtype, device=device)
    expected[0, :, 0, ::2] = even.t()
    return Case(key, lambda: [halves.scatter(even, odd, (1, channels, 1, width))], lambda: [expected])


TUNABLES = [
    Tunable("scale_shift", make_space, make_scale_shift),
    Tunable("scale_shift_add", make_space, partial(make_scale_shift_add, has_other_norm=False)),
    Tunable("scale_shift_add_two", make_space, partial(make_scale_shift_add, has_other_norm=True)),
    Tunable("batch_norm_input_gradient", make_space, make_input_gradient),
    Tunable("repeat_rows", make_space, make_repeat),
    Tunable("sum_terms", make_space, make_sum),
    Tunable("gather_halves", make_space, make_gather_halves),
    Tunable("scatter_halves", make_space, make_scatter_halves),
]
