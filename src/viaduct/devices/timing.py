"""Timing of variants of some work on a device, in short turns; medians of the times and their spread.

    clock = Clock(device, "cuda")
    warm_up(variant, clock, steps=10)
    seconds = take_turns({"ours": ours, "peer": peer}, clock, steps=20, windows=7)
    Sample(seconds["ours"]).median, compute_speedup(seconds["peer"], seconds["ours"])

A window is a few consecutive steps. In each turn every variant runs one window, so that a slow moment of the machine
affects all of them; each turn begins with another variant. A speedup is the median of the speedups of all turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

import torch

from viaduct.devices.base import Device

Steps = Callable[[int], object]  # a function that runs a number of steps, and need not wait for the device


class Clock:
    """Clock of a device: events on an accelerator, `time.perf_counter` on the CPU.

    `kind` is torch's name of the device's type, such as "cuda".
    """

    def __init__(self, device: Device, kind: str) -> None:
        self.device = device
        self.vendor: Any = None if kind == "cpu" else getattr(torch, kind)

    def measure_seconds(self, work: Callable[[], object]) -> float:
        """Return the seconds of the work on an idle device, including everything that it queues there."""
        self.device.synchronize()
        if self.vendor is None:
            began = time.perf_counter()
            work()
            return time.perf_counter() - began
        first, last = (self.vendor.Event(enable_timing=True) for _ in range(2))
        first.record()
        work()
        last.record()
        self.device.synchronize()
        return float(first.elapsed_time(last)) / 1000

    def measure_wall_seconds(self, work: Callable[[], object]) -> float:
        """Return the seconds of the work by the host's clock; for work mostly on the host, such as compiling."""
        self.device.synchronize()
        began = time.perf_counter()
        work()
        self.device.synchronize()
        return time.perf_counter() - began


@dataclass(frozen=True)
class Sample:
    """Values measured in the windows of one variant, with their median, quartiles and spread."""

    values: list[float]

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def quartiles(self) -> tuple[float, float]:
        """First and third quartile: half of all windows lie between them."""
        if len(self.values) == 1:
            return self.values[0], self.values[0]
        low, _, high = quantiles(self.values, n=4, method="inclusive")
        return low, high

    @property
    def spread(self) -> float:
        """The distance between the quartiles, as a share of the median."""
        low, high = self.quartiles
        return (high - low) / self.median if self.median else 0.0


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Let torch compute with this number of threads within the block."""
    default = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(default)


def warm_up(variant: Steps, clock: Clock, steps: int) -> float:
    """Run steps that are not measured; return the seconds of all of them."""
    return clock.measure_wall_seconds(lambda: variant(steps)) if steps else 0.0


def repeat(work: Callable[[], object]) -> Steps:
    """Return a function that does the work a given number of times."""

    def repeat_work(times: int) -> None:
        for _ in range(times):
            work()

    return repeat_work


def take_turns(
    variants: Mapping[str, Steps],
    clock: Clock,
    steps: int,
    windows: int,
    after_turn: Callable[[int], object] = lambda turn: None,
) -> dict[str, list[float]]:
    """Return the seconds per step of each variant: one value for each of its `windows`, which have `steps` steps.

    `after_turn` is called with the number of turns done.
    """
    names = list(variants)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(windows):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            variant = variants[name]
            seconds[name].append(clock.measure_seconds(lambda variant=variant: variant(steps)) / steps)  # type: ignore[misc]
        after_turn(turn + 1)
    return seconds


def compute_speedup(base: list[float], variant: list[float]) -> float:
    """Return how many times as fast a variant is as the base, from their seconds in each turn: the median of turns."""
    return median(base_seconds / seconds for base_seconds, seconds in zip(base, variant, strict=True))
