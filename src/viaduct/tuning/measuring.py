"""Measure variants: check their values, then time them in turns until the ranking of two is significant.

    timer = VariantTimer("cpu", kinds)
    timer.check_values(signature, point, default)                         # None, or what is wrong with its values
    timer.time_in_turns(signature, {"default": …, "candidate": …}, …)     # TurnTimes: times of each, turn by turn

A point is a configuration of an operator: one variant. Before every timed run a large buffer is written (twice the
largest cache, at most MAX_FLUSH), so that the operands are not in the caches. Variants run in turns, and each turn
begins with another variant, so that changes in the machine's speed affect all variants alike. Variants are compared by
the ratio of their times within a turn.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from viaduct import devices
from viaduct.devices.timing import Clock, Sample
from viaduct.tuning.bank import Choice, encode_point
from viaduct.tuning.operators import OperatorKind, Work
from viaduct.tuning.signature import Signature

MARGIN = 0.03  # smallest gain over the default, as a share of its time, for which a variant is stored
SIGNIFICANT = 0.05  # level of the sign test: largest probability of a result that is due to chance
# Turns of a measurement. Five are the fewest that can be significant: 1 / 2^5 < SIGNIFICANT.
MIN_TURNS, MAX_TURNS = 5, 25
TURNS_BEFORE_TIMEOUT = 3  # turns that are taken even if the time limit is over; too few to be significant
WARM_UPS = 2  # runs of each variant before the first turn
CONFIRMING_TURNS = 11  # minimum number of turns when a winner is measured again
ERROR_FACTOR = 4.0
"""Largest allowed error of a variant, as a multiple of the default's; both are measured against float64."""
# Relative error that is always allowed: eight float32 rounding errors. A kind of operator may have its own MIN_ERROR.
MIN_ERROR = 8 * 2.0**-24
CACHE_FILES = "/sys/devices/system/cpu/cpu0/cache/index*/size"
USUAL_CACHE = 32 << 20  # bytes; assumed if the size of the cache cannot be read
MAX_FLUSH = 256 << 20  # largest size in bytes of the buffer that is written between runs


@dataclass(frozen=True)
class TurnTimes:
    """Times in microseconds of variants that ran in turns, by name of the variant."""

    times_us: Mapping[str, list[float]]
    other_load: float = 0.0  # share of the processors that other programs used meanwhile

    def median_us(self, name: str) -> float:
        return float(median(self.times_us[name]))

    def spread(self, name: str) -> float:
        """Return the interquartile range of a variant's times as a share of their median."""
        return Sample(self.times_us[name]).spread

    def ratio(self, name: str, base: str) -> float:
        """Return the median over turns of the ratio of two variants' times."""
        pairs = zip(self.times_us[name], self.times_us[base], strict=True)
        return float(median(time / base_time for time, base_time in pairs))

    def is_faster(self, name: str, base: str) -> bool:
        """Return True if a variant is significantly faster than another, by a sign test over the turns."""
        return is_significant(self.times_us[name], self.times_us[base])


def is_significant(times: list[float], other_times: list[float]) -> bool:
    """Return True if a one-sided sign test finds that `times` are smaller, at the level SIGNIFICANT.

    `take_turns_until_significant` applies the test after every turn, so its error rate is somewhat above SIGNIFICANT.
    """
    pairs = list(zip(times, other_times, strict=True))
    wins = sum(time < other_time for time, other_time in pairs)
    decided = sum(time != other_time for time, other_time in pairs)  # turns without a tie
    probability = sum(math.comb(decided, count) for count in range(wins, decided + 1)) / 2.0**decided
    return probability < SIGNIFICANT


class VariantTimer:
    """Measures variants of operators on one device; caches the Work (runnable call) of the last operator's variants."""

    def __init__(self, device: str, kinds: Mapping[str, Any]) -> None:
        """Set the device, and the module or object of each kind of operator (`operators/`), by the kind's name."""
        self.device = device
        self.kinds: Mapping[str, OperatorKind] = kinds
        self.clock = Clock(devices.get(device), device)
        self.flush_buffer: torch.Tensor | None = None
        self.signature: Signature | None = None
        # Caches for `signature`:
        self.works: dict[str, Work] = {}  # by point
        self.reference: list[tuple[str, torch.Tensor]] = []  # name and tensor of the default's values in float64
        self.default_errors: dict[str, float] = {}  # by name of the value

    def switch_operator(self, signature: Signature) -> None:
        """Clear the caches if they belong to another operator."""
        if signature != self.signature:
            self.signature, self.works, self.reference, self.default_errors = signature, {}, [], {}

    def prepare(self, signature: Signature, point: Choice) -> Work:
        """Return the work of a point; it is made once while the operator stays the same."""
        self.switch_operator(signature)
        key = encode_point(point)
        if key not in self.works:
            self.works[key] = self.kinds[signature.kind].make_work(signature, point, self.device)
        return self.works[key]

    def check_values(self, signature: Signature, point: Choice, default: Choice) -> str | None:
        """Return a description of a variant's wrong values; None if they are right, or if the variant is the default.

        The error is the distance from the default's values in float64, relative to their norm.
        """
        self.switch_operator(signature)
        kind = self.kinds[signature.kind]
        if not self.reference:
            self.reference = list(kind.make_work(signature, default, self.device, exact=True).read_values())
            rounded = kind.make_work(signature, default, self.device).read_values()
            pairs = zip(rounded, self.reference, strict=True)
            self.default_errors = {name: find_error(tensor, exact) for (name, tensor), (_, exact) in pairs}
        if dict(point) == dict(default):
            return None
        values = kind.make_work(signature, point, self.device).read_values()
        for (name, tensor), (_, exact) in zip(values, self.reference, strict=True):
            if tensor.shape != exact.shape:
                return f"{name} has the shape {list(tensor.shape)}, not {list(exact.shape)}"
            always_allowed = getattr(kind, "MIN_ERROR", MIN_ERROR)
            error, allowed = find_error(tensor, exact), max(ERROR_FACTOR * self.default_errors[name], always_allowed)
            if not error <= allowed:  # NaN, too
                return f"{name} is off by {error:.1e}; the default by {self.default_errors[name]:.1e}"
        return None

    def time_in_turns(
        self,
        signature: Signature,
        points: Mapping[str, Choice],
        compared: tuple[str, str],
        min_turns: int = MIN_TURNS,
        max_turns: int = MAX_TURNS,
        seconds: float = 20.0,
    ) -> TurnTimes:
        """Time variants in turns, each with its operands out of the caches; see `take_turns_until_significant`."""
        works = {name: self.prepare(signature, point).run for name, point in points.items()}
        return take_turns_until_significant(works, self.clock, compared, min_turns, max_turns, seconds, self.flush)

    def flush(self) -> None:
        """Write a large buffer, so that the operands leave the caches."""
        if self.flush_buffer is None:
            size = min(MAX_FLUSH, 2 * find_cache_bytes(self.device))
            self.flush_buffer = torch.zeros(size // 4, dtype=torch.int32, device=self.device)
        self.flush_buffer.add_(1)


def take_turns_until_significant(
    works: Mapping[str, Callable[[], object]],
    clock: Clock,
    compared: tuple[str, str],
    min_turns: int,
    max_turns: int,
    seconds: float,
    before_each: Callable[[], object] = lambda: None,
) -> TurnTimes:
    """Time functions in turns until the ranking of the two in `compared` is significant, or turns or time run out.

    At least `min_turns` are taken, unless `seconds` have passed after TURNS_BEFORE_TIMEOUT turns.
    """
    for run in works.values():
        for _ in range(WARM_UPS):
            run()
    times: dict[str, list[float]] = {name: [] for name in works}
    load = OtherPrograms()
    names, end = list(works), time.monotonic() + seconds
    for turn in range(max_turns):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            before_each()
            times[name].append(clock.measure_seconds(works[name]) * 1e6)
        first_times, second_times = (times[name] for name in compared)
        if turn + 1 >= min_turns and (
            is_significant(first_times, second_times) or is_significant(second_times, first_times)
        ):
            break
        if turn + 1 >= TURNS_BEFORE_TIMEOUT and time.monotonic() > end:
            break
    return TurnTimes(times, load.measure_share())


class OtherPrograms:
    """CPU use of all other processes since this object was created, from /proc/stat; 0 if that cannot be read."""

    def __init__(self) -> None:
        self.before = self.read()

    def read(self) -> tuple[float, float, float]:
        """Return three times in seconds: of all processors since boot, the busy part of it, and of this process.

        All are 0 if /proc/stat cannot be read.
        """
        try:
            numbers = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        except (OSError, ValueError, IndexError):
            return 0.0, 0.0, 0.0
        tick = os.sysconf("SC_CLK_TCK")
        idle = numbers[3] + numbers[4]  # idle and iowait
        return sum(numbers) / tick, (sum(numbers) - idle) / tick, time.process_time()

    def measure_share(self) -> float:
        """Return the share of all processors' time that other processes used."""
        total, busy, own_time = (now - then for now, then in zip(self.read(), self.before, strict=True))
        return max(0.0, min(1.0, (busy - own_time) / total)) if total > 0 else 0.0


def find_error(values: torch.Tensor, exact: torch.Tensor) -> float:
    """Return the distance from the exact values, relative to their norm; the distance itself if the norm is 0."""
    return float((values.double() - exact.double()).norm()) / (float(exact.double().norm()) or 1.0)


def find_cache_bytes(device: str) -> int:
    """Return the size of the L2 cache of CUDA device 0 or, for other devices, of the CPU's largest cache."""
    if device == "cuda":
        return int(getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0)) or USUAL_CACHE
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    sizes = []
    for file in Path("/").glob(CACHE_FILES.lstrip("/")):
        try:
            text = file.read_text().strip()
            sizes.append(int(text.rstrip("KMG")) * units.get(text[-1:], 1))
        except (OSError, ValueError):
            continue
    return max(sizes, default=USUAL_CACHE)
