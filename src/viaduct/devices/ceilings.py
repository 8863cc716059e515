"""Ceilings of a device's roofline: the memory bandwidth of a large copy, and the rate of a large matrix product.

Both are measured, because a data sheet's figures hold for a clock rate and temperature that a real machine does not
keep. The work is repeated in several short periods, called windows; the fastest window gives the rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from viaduct.devices.base import Device
from viaduct.devices.timing import Clock, repeat

WINDOWS = 5
# By type of device; the DEFAULT_ constants are for types that are not listed.
COPY_BYTES = {"cpu": 128 << 20}  # more than the caches of most processors, but not of all servers
DEFAULT_COPY_BYTES = 2 << 30
MATRIX_SIDE = {"cpu": 1024}
DEFAULT_MATRIX_SIDE = 8192
WINDOW_SECONDS, MAX_CALLS = 0.05, 50  # a window has as many calls as fit into this time, at most MAX_CALLS


@dataclass(frozen=True)
class Ceilings:
    """Measured peak rates. An operator can only exceed the bandwidth if its data stay in a cache."""

    bandwidth: float  # bytes/s, reads plus writes
    matrix: float  # floating-point operations/s of a matrix product, in the precision of the training step


def measure(device: Device, torch_device: torch.device, dtype: torch.dtype, tf32: bool) -> Ceilings:
    """Measure the bandwidth and the rate of matrix products in a dtype; `tf32` allows TF32 in fp32 products."""
    clock = Clock(device, torch_device.type)
    return Ceilings(
        measure_copy_rate(clock, device, torch_device), measure_matmul_rate(clock, torch_device, dtype, tf32)
    )


def measure_copy_rate(clock: Clock, device: Device, torch_device: torch.device) -> float:
    copy_bytes = COPY_BYTES.get(torch_device.type, DEFAULT_COPY_BYTES)
    copy_bytes = min(copy_bytes, device.get_free_memory() // 8)  # two tensors of this size take a quarter of it
    elements = max(1, copy_bytes // torch.float32.itemsize)
    source = torch.ones(elements, device=torch_device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / time_fastest(clock, lambda: target.copy_(source))


def measure_matmul_rate(clock: Clock, torch_device: torch.device, dtype: torch.dtype, tf32: bool) -> float:
    side = MATRIX_SIDE.get(torch_device.type, DEFAULT_MATRIX_SIDE)
    left, right = (torch.randn(side, side, device=torch_device).to(dtype) for _ in range(2))
    output = torch.empty_like(left)
    with set_matmul_precision(tf32):
        return 2 * side**3 / time_fastest(clock, lambda: torch.mm(left, right, out=output))


@contextmanager
def set_matmul_precision(tf32: bool) -> Iterator[None]:
    """Allow or forbid TF32 in fp32 matrix products within the block.

    The process's own setting for matrix products is not used, because convolutions, which have a separate setting, are
    compared with the measured rate, too.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def time_fastest(clock: Clock, work: Callable[[], object]) -> float:
    """Return the seconds of one call in the fastest window."""
    repeat_work = repeat(work)
    call_seconds = clock.measure_seconds(lambda: repeat_work(2)) / 2  # these two calls are also the warm-up
    calls = min(MAX_CALLS, max(1, round(WINDOW_SECONDS / max(call_seconds, 1e-6))))
    return min(clock.measure_seconds(lambda: repeat_work(calls)) for _ in range(WINDOWS)) / calls
