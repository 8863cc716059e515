"""Search spaces and cases of kernels that read a pixel's neighbours: pools, and sums with a pool as a term."""

from __future__ import annotations

from dataclasses import asdict

import torch
import torch.nn.functional as F
from torch import Tensor

from viaduct.kernels import inference, pooling, terms
from viaduct.kernels.choices import Signature
from viaduct.kernels.norm import view_as_rows
from viaduct.kernels.pooling import Pool
from viaduct.kernels.sizes import DEFAULT_AREA
from viaduct.kernels.tunable.base import LaunchAndReference, Limits, RandomTensors, Tunable, limit_elements
from viaduct.models.padding import average_pool_same, max_pool_same
from viaduct.search_space import Parameter, Point, Space

PARAMETERS = (
    Parameter("height", (1, 2, 4, 8)),
    Parameter("width", (1, 2, 4, 8, 16)),
    Parameter("columns", (16, 32, 64, 128, 256)),
    Parameter("warps", (1, 2, 4, 8)),
)
MAX_ELEMENTS = 32  # in a thread; each has a value, a position in the window and an address in registers


def limit_area(point: Point) -> str | None:
    area = int(point["height"]) * int(point["width"]) * int(point["columns"])
    return limit_elements(area, point, MAX_ELEMENTS)


def make_space(signature: Signature, limits: Limits) -> Space:
    hints = [asdict(DEFAULT_AREA) | {"height": height, "width": width} for height, width in ((1, 8), (4, 4), (1, 4))]
    return Space(PARAMETERS, [limit_area], default=asdict(DEFAULT_AREA), hints=hints)


def compute_pool(x: Tensor, pool: Pool) -> Tensor:
    """Compute a pool with PyTorch."""
    if pool.valid_only:
        return F.avg_pool2d(x, pool.size, pool.stride)
    return (average_pool_same if pool.average else max_pool_same)(x, pool.size, pool.stride)


def prepare_forward(random: RandomTensors, *sizes: int) -> LaunchAndReference:
    *shape, size, stride, average, valid_only = sizes
    x, pool = random.draw_images(*shape), Pool(size, stride, bool(average), bool(valid_only))
    return lambda: [pooling.apply_pool(x, pool)], lambda: [compute_pool(x.double().contiguous(), pool)]


def prepare_backward(random: RandomTensors, *sizes: int) -> LaunchAndReference:
    *shape, size, stride, average, valid_only = sizes
    pool = Pool(size, stride, bool(average), bool(valid_only))
    x = random.draw_images(*shape).double().contiguous().requires_grad_()
    y = compute_pool(x, pool)
    gradient = random.draw_images(*y.shape)
    (expected,) = torch.autograd.grad(y, x, gradient.double())
    argmax = None if average else compute_argmax(x.detach().to(random.dtype), pool)
    rows = view_as_rows(gradient)
    return lambda: [pooling.backward(rows, argmax, tuple(shape), pool)], lambda: [expected]


def compute_argmax(x: Tensor, pool: Pool) -> Tensor:
    """Return the argmax that the forward kernel computes."""
    x = x.contiguous(memory_format=torch.channels_last).requires_grad_()
    y = pooling.apply_pool(x, pool)
    assert y.grad_fn is not None
    argmax: Tensor = y.grad_fn.argmax  # type: ignore[attr-defined]
    return argmax


def prepare_inference(random: RandomTensors, *sizes: int) -> LaunchAndReference:
    *shape, size, stride = sizes
    x, pool = random.draw_images(*shape), Pool(size, stride, average=False)
    return lambda: [inference.max_pool(x, pool)], lambda: [compute_pool(x.double().contiguous(), pool)]


def prepare_sum(random: RandomTensors, count: int, height: int, width: int, channels: int) -> LaunchAndReference:
    """Return a case for the sum of a 3x3 average pool and a norm."""
    pool = Pool(3, 1, average=True)
    pooled, x, statistics = (
        *(random.draw_images(count, channels, height, width) for _ in range(2)),
        random.draw_norm(channels),
    )
    shape = (count, channels, height, width)
    saved = [terms.SavedTerm(shape, pool=pool), terms.SavedTerm(shape, view_as_rows(x), statistics)]

    def launch() -> list[Tensor]:
        raw = torch.empty_like(view_as_rows(x))
        terms.launch_sum(saved, (pooled, x), raw, positive=None, signs=None, size=(count, height, width))
        return [raw]

    def compute() -> list[Tensor]:
        normed = x.double() * statistics.scale.view(1, -1, 1, 1) + statistics.shift.view(1, -1, 1, 1)
        return [view_as_rows(compute_pool(pooled.double().contiguous(), pool) + normed)]

    return launch, compute


TUNABLES = [
    Tunable("pooling_forward", make_space, prepare_forward),
    Tunable("pooling_backward", make_space, prepare_backward),
    Tunable("max_pooling", make_space, prepare_inference),
    Tunable("sum_terms_pooled", make_space, prepare_sum),
]
