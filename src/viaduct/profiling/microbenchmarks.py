"""Measurements on this machine for advice: two implementations of the same work, in turns.

    microbenchmarks = DeviceMicrobenchmarks("cpu", threads=2)
    contiguous_us, channels_last_us = microbenchmarks.time_layouts(convolution)

After a warm-up, the two take turns in short windows, so that a slow moment of the machine affects both. The result is
the time of one pass in the fastest window, or None for work that cannot be run here (no memory, unsupported dtype).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch.nn import functional

from viaduct import devices
from viaduct.devices.timing import Clock, repeat, take_turns, use_threads
from viaduct.profiling.figures import Convolution, MatrixProduct, Microbenchmarks

WINDOWS = 7  # number of windows of each of the two
WINDOW_S = 0.03
"""Length of a window in seconds: much more than the clock's resolution, less than disturbances of a shared machine."""
MAX_ELEMENTS = 1 << 28  # largest number of elements of a measured tensor: 1 GiB of float32

Work = Callable[[], object]  # a function that is timed


class DeviceMicrobenchmarks(Microbenchmarks):
    """Microbenchmarks on one device of this machine."""

    def __init__(self, device: str, threads: int | None = None) -> None:
        """Set the device, and the number of threads on the CPU (None: torch's default)."""
        self.device = device
        self.threads = threads
        self.failures: list[str] = []  # reasons for results that are None

    def time_layouts(self, convolution: Convolution) -> tuple[float, float] | None:
        return self.compare(
            lambda: make_pass(convolution, self.device, convolution.dtype),
            lambda: make_pass(convolution, self.device, convolution.dtype, torch.channels_last),
        )

    def time_dtypes(self, work: Convolution | MatrixProduct, dtype: str) -> tuple[float, float] | None:
        return self.compare(
            lambda: make_pass(work, self.device, "float32"), lambda: make_pass(work, self.device, dtype)
        )

    def time_updates(self, class_name: str, sizes: Sequence[int]) -> tuple[float, float] | None:
        default = {"foreach": self.device != "cpu"}  # on the CPU torch updates one parameter at a time
        return self.compare(
            lambda: make_update(class_name, sizes, self.device, **default),
            lambda: make_update(class_name, sizes, self.device, fused=True),
        )

    def compare(self, make_first: Callable[[], Work], make_second: Callable[[], Work]) -> tuple[float, float] | None:
        """Return microseconds of two pieces of work; None if one of them cannot be run on this device."""
        if (problem := devices.get(self.device).find_problem()) is not None:
            self.failures.append(problem)
            return None
        try:
            threads = self.threads if self.threads and self.device == "cpu" else torch.get_num_threads()
            with use_threads(threads), torch.random.fork_rng(devices=[]):  # restores the CPU's random state
                return self.take_times(make_first(), make_second())
        except (RuntimeError, TypeError, ValueError, MemoryError) as error:
            # The operator does not support this dtype or size here, or there is no memory for it.
            self.failures.append(f"{type(error).__name__}: {error}".splitlines()[0])
            return None

    def take_times(self, first: Work, second: Work) -> tuple[float, float]:
        """Return microseconds of two pieces of work that take turns in windows of about WINDOW_S."""
        clock = Clock(devices.get(self.device), self.device)
        # The first call of each also warms up. An estimate that is too long only shortens the windows.
        longest = max(clock.measure_wall_seconds(work) for work in (first, second, first, second))
        passes = max(1, min(200, round(WINDOW_S / max(longest, 1e-6))))
        variants = {"first": repeat(first), "second": repeat(second)}
        turns = take_turns(variants, clock, steps=passes, windows=WINDOWS)
        return min(turns["first"]) * 1e6, min(turns["second"]) * 1e6


def make_pass(
    work: Convolution | MatrixProduct, device: str, dtype: str, layout: torch.memory_format = torch.contiguous_format
) -> Work:
    """Return a function that does the work forward and backward in `dtype`, with casts from and to float32."""
    if isinstance(work, Convolution):
        shapes: Sequence[Sequence[int]] = (work.input, work.weight)
    else:
        shapes = ((work.rows, work.inner), (work.inner, work.columns))
    left, right = (make_tensor(shape, device).to(memory_format=layout).requires_grad_() for shape in shapes)
    torch_dtype = getattr(torch, dtype)

    def run() -> None:
        x, w = left.to(torch_dtype), right.to(torch_dtype)
        if isinstance(work, Convolution):
            y = functional.conv2d(x, w, None, work.stride, work.padding, 1, work.groups)
        else:
            y = x @ w
        torch.autograd.grad(y, (left, right), torch.ones_like(y))

    return run


def make_update(class_name: str, sizes: Sequence[int], device: str, **options: Any) -> Work:
    """Return the `step` of an optimizer of this class in torch.optim, such as "SGD"."""
    parameters = [torch.nn.Parameter(make_tensor((size,), device)) for size in sizes]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    extra = {"momentum": 0.9} if class_name == "SGD" else {}
    step: Work = getattr(torch.optim, class_name)(parameters, lr=1e-3, **extra, **options).step
    return step


def make_tensor(shape: Sequence[int], device: str) -> torch.Tensor:
    if prod(shape) > MAX_ELEMENTS:
        raise ValueError(f"{prod(shape)} elements are too many to measure")
    return torch.randn(tuple(shape), device=device)
