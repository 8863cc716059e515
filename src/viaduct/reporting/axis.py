"""Axes of charts: their range, the positions of values along them, and ticks at round numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from viaduct.reporting.figures import format_column, format_power, format_scientific

Floats: TypeAlias = npt.NDArray[np.float64]

# Lowest end of a log axis, and the inverse of its highest end: floats beyond these lose digits, then overflow.
MIN_LOG_END = 1e-305
# Scale and suffix of tick labels; the first whose scale the largest tick reaches is taken, else the last.
UNITS = ((1e9, " G"), (1e6, " M"), (1, ""))


@dataclass(frozen=True)
class Tick:
    """A labelled value on an axis; `position` is 0 at the low end and 1 at the high end."""

    position: float
    label: str


@dataclass(frozen=True)
class Axis:
    """A range of values on a linear or logarithmic scale."""

    low: float
    high: float
    log: bool = False

    def compute_positions(self, values: Floats) -> Floats:
        """Return positions from 0 (low) to 1 (high); NaN for NaN and for values without a logarithm."""
        if not self.log:
            return (values - self.low) / (self.high - self.low)
        logs = np.log10(values, where=values > 0, out=np.full_like(values, np.nan))
        return (logs - math.log10(self.low)) / (math.log10(self.high) - math.log10(self.low))

    def ticks(self, count: int, integers: bool = False) -> list[Tick]:
        """Return at most about `count` ticks; with `integers`, at whole numbers only."""
        if self.log:
            values = choose_log_ticks(self.low, self.high, count)
            labels = label_log_ticks(values)
        else:
            values = choose_linear_ticks(self.low, self.high, count, integers)
            labels = label_linear_ticks(values)
        positions = self.compute_positions(np.asarray(values, float))
        return [Tick(float(position), label) for position, label in zip(positions, labels, strict=True)]


def fit_x_axis(values: Floats) -> Axis:
    """Return a horizontal axis exactly as wide as the data; a single value is in its middle."""
    low, high = find_range(values)
    return Axis(low - 0.5, high + 0.5) if is_one_value(low, high) else Axis(low, high)


def fit_y_axis(values: Floats, log: bool = False) -> Axis:
    """Return a vertical axis with a margin around the data; a linear one begins at zero if zero is near."""
    low, high = find_range(values[values > 0] if log else values)
    if log:
        factor = 2.0 if is_one_value(low, high) else 10 ** (0.04 * (math.log10(high) - math.log10(low)))
        return Axis(max(low / factor, MIN_LOG_END), min(high * factor, 1 / MIN_LOG_END), log=True)
    if is_one_value(low, high):
        return Axis(*widen(low, high))
    margin = 0.05 * (high - low)
    return Axis(0.0 if 0 <= low < 0.3 * high else low - margin, high + margin)


def find_range(values: Floats) -> tuple[float, float]:
    """Return the smallest and largest value; 1 and 10 if there are none."""
    return (float(values.min()), float(values.max())) if values.size else (1.0, 10.0)


def is_one_value(low: float, high: float) -> bool:
    """Return True if two values are too close for different tick labels, which have twelve digits."""
    return high - low <= 1e-9 * max(abs(low), abs(high))


def widen(low: float, high: float) -> tuple[float, float]:
    """Return a range around a single value: 5 % on both sides, or from -1 to 1 around zero."""
    margin = 0.05 * abs(low) or 1.0
    return low - margin, high + margin


def choose_linear_ticks(low: float, high: float, count: int, integers: bool = False) -> list[float]:
    """Return multiples of 1, 2 or 5 times a power of ten."""
    wanted_step = (high - low) / count
    power = 10.0 ** math.floor(math.log10(wanted_step))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= wanted_step * 0.999)
    if integers:
        step = max(1.0, step)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{multiple * step:.12g}") for multiple in range(first, last + 1)]  # 0.3, not 0.30000000000000004


def choose_log_ticks(low: float, high: float, count: int) -> list[float]:
    """Return powers of ten; within two decades also 2 and 5 times them, or linear ticks if fewer than three fit."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if last - first >= 2:
        stride = math.ceil((last - first + 1) / count)
        return [10.0**exponent for exponent in range(first, last + 1, stride)]
    powers = [10.0**exponent for exponent in range(first - 1, last + 1)]
    visible = [value for power in powers for value in (power, 2 * power, 5 * power) if low <= value <= high]
    return visible if len(visible) >= 3 else [value for value in choose_linear_ticks(low, high, count) if value > 0]


def label_linear_ticks(values: Sequence[float]) -> list[str]:
    """Return labels with as many decimals as the step needs; millions and the very small in short forms."""
    largest = max(map(abs, values), default=0.0)
    step = values[1] - values[0] if len(values) > 1 else largest
    if largest >= 1e12 or 0 < largest < 1e-3:
        return [format_scientific(value) for value in values]
    scale, suffix = next(unit for unit in UNITS if largest >= unit[0] or unit[0] == 1)
    decimals = max(0, -math.floor(math.log10(step / scale) + 1e-9)) if step else 0
    return [f"{value / scale:,.{decimals}f}{suffix}" if value else "0" for value in values]


def label_log_ticks(values: Sequence[float]) -> list[str]:
    """Return plain numbers if all are within 0.001 and 10,000, else powers of ten or short numbers."""
    if all(1e-3 <= value <= 1e4 for value in values):
        return [f"{value:,.12g}" for value in values]
    exponents = [math.log10(value) for value in values]
    if all(abs(exponent - round(exponent)) < 1e-9 for exponent in exponents):
        return [format_power(round(exponent)) for exponent in exponents]
    return format_column(values)
