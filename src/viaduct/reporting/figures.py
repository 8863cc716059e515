"""Format numbers for readers: few digits, thousands separators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import SupportsFloat, TypeGuard

import numpy as np

MISSING = "–"
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def is_missing(value: object) -> bool:
    """Return True for None and NaN."""
    return value is None or (is_number(value) and math.isnan(value))


def is_number(value: object) -> TypeGuard[SupportsFloat]:
    """Return True for Python's and NumPy's numbers, but not for bool."""
    if isinstance(value, (float, str)):  # most cells of a table; isinstance with a protocol takes fifty times as long
        return isinstance(value, float)
    return isinstance(value, SupportsFloat) and not isinstance(value, (bool, np.bool_))


def round_digits(value: float, digits: int) -> float | None:
    """Return a number rounded to significant digits for JSON; None for NaN and infinity."""
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def format_count(count: float) -> str:
    return f"{count:,.0f}"


def format_share(share: float) -> str:
    return f"{share * 100:.1f}\N{NO-BREAK SPACE}%"


def format_power(exponent: int) -> str:
    """Return a power of ten: 10⁻⁵."""
    return "10" + str(exponent).translate(SUPERSCRIPTS)


def format_scientific(value: float, digits: int = 3) -> str:
    """Return a number as 2.5×10⁻⁵, which reads better in a column than 2.5e-05."""
    if not value or not math.isfinite(value):
        return format_fixed(value, 0)
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    power = format_power(int(exponent))
    return power if mantissa == "1" else f"{mantissa}×{power}"


def format_column(values: Sequence[float]) -> list[str]:
    """Format the numbers of a column with the same number of decimals, or all in scientific form.

    The largest number gets at least four significant digits and the smallest at least three, unless these are zeros:
    decimals that are 0 in all of them are left out.
    """
    sizes = [abs(value) for value in values if math.isfinite(value) and value]
    if all(float(size).is_integer() for size in sizes) and max(sizes, default=0) < 1e15:
        return [format_fixed(value, 0) for value in values]
    if min(sizes) < 1e-4 or max(sizes) >= 1e7:
        return [format_scientific(value) for value in values]
    decimals = max(count_decimals(max(sizes), 4), count_decimals(min(sizes), 3))
    needed = max(len(f"{size:.{decimals}f}".rstrip("0").partition(".")[2]) for size in sizes)
    return [format_fixed(value, needed) for value in values]


def format_fixed(value: float, decimals: int) -> str:
    """Return a number with this many decimals, or a sign for NaN and infinity."""
    if math.isfinite(value):
        return f"{value:,.{decimals}f}"
    return MISSING if math.isnan(value) else "∞" if value > 0 else "−∞"


def count_decimals(value: float, significant: int) -> int:
    """Return the number of decimals with which a value shows `significant` digits."""
    return max(0, significant - 1 - math.floor(math.log10(value)))
