"""Clocks for the time points of a step: the host's counter on the CPU, device events on an accelerator.

    clock = open_clock("cuda")
    mark = clock.mark()                       # takes about a microsecond and waits for nothing
    …
    if clock.is_ready(mark):
        clock.read(mark)                      # microseconds of time.perf_counter_ns()

A mark of an accelerator is an event on the current stream: its time is when the device reaches it.
"""

from __future__ import annotations

import time
from typing import Any


def read_host_us() -> float:
    return time.perf_counter_ns() / 1000


class Clock:
    """Clock that takes marks, and converts them later to microseconds; on the host, marks are microseconds already."""

    def mark(self) -> Any:
        return read_host_us()

    def is_ready(self, mark: Any) -> bool:
        return True

    def read(self, mark: Any) -> float:
        return float(mark)

    def synchronize(self) -> None:
        """Wait until all marks can be read."""


class DeviceClock(Clock):
    """Clock of an accelerator: marks are events of `torch.cuda`, `torch.npu` or `torch.mlu`, which share one interface.

    `elapsed_time` returns a 32-bit number of milliseconds, which is coarse over minutes. So each event is read relative
    to the event that was read before it.
    """

    def __init__(self, vendor: Any) -> None:
        """Start the clock; `vendor` is one of these modules of torch."""
        self._vendor = vendor
        vendor.synchronize()
        self._base, self._base_us = self.mark(), read_host_us()

    def mark(self) -> Any:
        event = self._vendor.Event(enable_timing=True)
        event.record()
        return event

    def is_ready(self, mark: Any) -> bool:
        return bool(mark.query())

    def read(self, mark: Any) -> float:
        if mark is not self._base:
            self._base_us += float(self._base.elapsed_time(mark)) * 1000
            self._base = mark
        return self._base_us

    def synchronize(self) -> None:
        self._vendor.synchronize()


def open_clock(device: str) -> Clock:
    """Return the clock of a device by its kind: cpu, cuda, npu, mlu."""
    if device == "cpu":
        return Clock()
    import torch

    vendor: Any = getattr(torch, device)
    return DeviceClock(vendor)
