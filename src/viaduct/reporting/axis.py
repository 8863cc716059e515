"""Where an axis begins and ends, and which round numbers stand along it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from viaduct.reporting.figures import write_column, write_power, write_scientific

Floats: TypeAlias = npt.NDArray[np.float64]

SMALLEST = 1e-305
"""A log axis ends here, and at the inverse: beyond it floats lose their digits, then their value."""
UNITS = ((1e9, " G"), (1e6, " M"), (1, ""))


@dataclass(frozen=True)
class Tick:
    """A round number on an axis; `place` is 0 at the low end and 1 at the high end."""

    place: float
    label: str


@dataclass(frozen=True)
class Axis:
    """A span of values, straight or logarithmic."""

    low: float
    high: float
    log: bool = False

    def place(self, values: Floats) -> Floats:
        """Say where values fall between 0 and 1; what has no place here (NaN, log of zero) is NaN."""
        if not self.log:
            return (values - self.low) / (self.high - self.low)
        logs = np.log10(values, where=values > 0, out=np.full_like(values, np.nan))
        return (logs - math.log10(self.low)) / (math.log10(self.high) - math.log10(self.low))

    def ticks(self, most: int, whole: bool = False) -> list[Tick]:
        """At most about `most` ticks; `whole` keeps half epochs off the axis."""
        if self.log:
            values = log_ticks(self.low, self.high, most)
            labels = decade_labels(values)
        else:
            values = even_ticks(self.low, self.high, most, whole)
            labels = even_labels(values)
        positions = self.place(np.asarray(values, float))
        return [Tick(float(position), label) for position, label in zip(positions, labels, strict=True)]


def across(values: Floats) -> Axis:
    """The horizontal axis: exactly as wide as the data, or with one value in its middle."""
    low, high = span(values)
    return Axis(low - 0.5, high + 0.5) if same(low, high) else Axis(low, high)


def upward(values: Floats, log: bool = False) -> Axis:
    """The vertical axis: a little air around the data, and zero where zero is near."""
    low, high = span(values[values > 0] if log else values)
    if log:
        air = 2.0 if same(low, high) else 10 ** (0.04 * (math.log10(high) - math.log10(low)))
        return Axis(max(low / air, SMALLEST), min(high * air, 1 / SMALLEST), log=True)
    if same(low, high):
        air = 0.05 * abs(low) or 1.0
        return Axis(low - air, high + air)
    air = 0.05 * (high - low)
    return Axis(0.0 if 0 <= low < 0.3 * high else low - air, high + air)


def span(values: Floats) -> tuple[float, float]:
    """Return the smallest and largest value; 1 and 10 where there is none."""
    return (float(values.min()), float(values.max())) if values.size else (1.0, 10.0)


def same(low: float, high: float) -> bool:
    """True when ticks between the two could not be told apart in twelve digits."""
    return high - low <= 1e-9 * max(abs(low), abs(high))


def even_ticks(low: float, high: float, most: int, whole: bool = False) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    if whole:
        step = max(1.0, step)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round_off(multiple * step) for multiple in range(first, last + 1)]


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Powers of ten; within two decades also 2 and 5 times them; within less than that, even steps."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if last - first >= 2:
        stride = math.ceil((last - first + 1) / most)
        return [10.0**exponent for exponent in range(first, last + 1, stride)]
    powers = [10.0**exponent for exponent in range(first - 1, last + 1)]
    inside = [value for power in powers for value in (power, 2 * power, 5 * power) if low <= value <= high]
    return inside if len(inside) >= 3 else [value for value in even_ticks(low, high, most) if value > 0]


def even_labels(values: Sequence[float]) -> list[str]:
    """Return labels with as many decimals as the step needs; millions and the very small in short forms."""
    step = values[1] - values[0] if len(values) > 1 else abs(values[0]) if values else 1.0
    largest = max(map(abs, values), default=0.0)
    if largest >= 1e12 or 0 < largest < 1e-3:
        return [write_scientific(value) for value in values]
    scale, suffix = next(unit for unit in UNITS if largest >= unit[0] or unit[0] == 1)
    decimals = max(0, -math.floor(math.log10(step / scale) + 1e-9)) if step else 0
    return [f"{value / scale:,.{decimals}f}{suffix}" if value else "0" for value in values]


def decade_labels(values: Sequence[float]) -> list[str]:
    """Plain numbers while they are short, powers of ten beyond a thousandth and ten thousand."""
    if all(1e-3 <= value <= 1e4 for value in values):
        return [f"{value:,.12g}" for value in values]
    exponents = [math.log10(value) for value in values]
    if all(abs(exponent - round(exponent)) < 1e-9 for exponent in exponents):
        return [write_power(round(exponent)) for exponent in exponents]
    return write_column(values)


def round_off(value: float) -> float:
    """Take away the crumbs of binary arithmetic: 0.30000000000000004 is 0.3."""
    return float(f"{value:.12g}")
