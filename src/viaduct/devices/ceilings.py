"""What the device can do at best, measured here and now: a large copy, and a large matrix product.

Figures from a data sheet are for a clock and a temperature that nobody has. The best of a few windows counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from viaduct.devices.base import Device
from viaduct.devices.timing import Clock, take_turns

WINDOWS = 5
COPIED = {"cpu": 128 << 20}  # bytes; far more than any cache
COPIED_ELSEWHERE = 2 << 30
SIDE = {"cpu": 1024}
SIDE_ELSEWHERE = 8192


@dataclass(frozen=True)
class Ceilings:
    bandwidth: float  # bytes/s read and written
    matrix: float  # floating-point operations/s in the precision of computation


def measure(device: Device, place: torch.device, dtype: torch.dtype, tf32: bool) -> Ceilings:
    clock = Clock(device, place.type)
    return Ceilings(copy_rate(clock, device, place), product_rate(clock, place, dtype, tf32))


def copy_rate(clock: Clock, device: Device, place: torch.device) -> float:
    wanted = COPIED.get(place.type, COPIED_ELSEWHERE)
    numbers = max(1, min(wanted, device.memory_free() // 8) // 4)
    source = torch.ones(numbers, device=place)
    target = torch.empty_like(source)
    return 2 * source.nbytes / best(clock, lambda: target.copy_(source))


def product_rate(clock: Clock, place: torch.device, dtype: torch.dtype, tf32: bool) -> float:
    side = SIDE.get(place.type, SIDE_ELSEWHERE)
    left, right = (torch.randn(side, side, device=place).to(dtype) for _ in range(2))
    made = torch.empty_like(left)
    with as_convolutions_are(tf32):
        return 2 * side**3 / best(clock, lambda: torch.mm(left, right, out=made))


@contextmanager
def as_convolutions_are(tf32: bool) -> Iterator[None]:
    """PyTorch rounds fp32 convolutions to TF32 where it may, and fp32 matrix products not: a ceiling is for both."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def best(clock: Clock, work: Callable[[], object]) -> float:
    """Seconds of one, in the quickest window."""

    def repeated(times: int) -> None:
        for _ in range(times):
            work()

    once = clock.seconds(lambda: repeated(2)) / 2  # it also warms up
    times = min(50, max(1, round(0.05 / max(once, 1e-6))))
    return min(take_turns({"": repeated}, clock, times, WINDOWS)[""])
