"""Measured peak rates of a device: memory bandwidth of a large copy, and rate of a large matrix product.

They are measured, because a real machine does not keep the clock and the temperature for which a data sheet's figures
hold. Of WINDOWS windows of repeated work the fastest counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from viaduct.devices.base import Device
from viaduct.devices.timing import Clock, repeat, take_turns

WINDOWS = 5
# By type of device; the constants _ELSEWHERE are for all other types.
COPY_BYTES = {"cpu": 128 << 20}  # more than the caches of most processors; a server's may hold all of it
COPY_BYTES_ELSEWHERE = 2 << 30
SIDE = {"cpu": 1024}  # of the square matrices
SIDE_ELSEWHERE = 8192


@dataclass(frozen=True)
class Ceilings:
    """Peak rates that a training step is compared with."""

    bandwidth: float  # bytes/s, read and written together
    matrix: float  # floating-point operations/s of a matrix product, in the precision that the step computes in


def measure(device: Device, torch_device: torch.device, dtype: torch.dtype, tf32: bool) -> Ceilings:
    """Measure the bandwidth, and the matrix product rate in a dtype."""
    clock = Clock(device, torch_device.type)
    return Ceilings(
        measure_copy_rate(clock, device, torch_device), measure_matmul_rate(clock, torch_device, dtype, tf32)
    )


def measure_copy_rate(clock: Clock, device: Device, torch_device: torch.device) -> float:
    copy_bytes = COPY_BYTES.get(torch_device.type, COPY_BYTES_ELSEWHERE)
    elements = max(1, min(copy_bytes, device.memory_free() // 8) // 4)
    source = torch.ones(elements, device=torch_device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / time_fastest(clock, lambda: target.copy_(source))


def measure_matmul_rate(clock: Clock, torch_device: torch.device, dtype: torch.dtype, tf32: bool) -> float:
    side = SIDE.get(torch_device.type, SIDE_ELSEWHERE)
    left, right = (torch.randn(side, side, device=torch_device).to(dtype) for _ in range(2))
    output = torch.empty_like(left)
    with set_matmul_precision(tf32):
        return 2 * side**3 / time_fastest(clock, lambda: torch.mm(left, right, out=output))


@contextmanager
def set_matmul_precision(tf32: bool) -> Iterator[None]:
    """Let fp32 matrix products use TF32 within the block, or not.

    PyTorch has other defaults for products than for convolutions, and the ceiling is for both.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def time_fastest(clock: Clock, work: Callable[[], object]) -> float:
    """Return the seconds of one call in the fastest window."""
    once = clock.seconds(lambda: repeat(work)(2)) / 2  # it also warms up
    times = min(50, max(1, round(0.05 / max(once, 1e-6))))
    return min(take_turns({"": repeat(work)}, clock, times, WINDOWS)[""])
