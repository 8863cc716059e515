"""How a number is written for a reader: few digits, thousands set apart, no noise behind the point."""

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
    """True for Python's and numpy's numbers; a bool is an answer, not a number."""
    if isinstance(value, (float, str)):  # most of a table; asking the protocol takes fifty times as long
        return isinstance(value, float)
    return isinstance(value, SupportsFloat) and not isinstance(value, (bool, np.bool_))


def write_count(count: float) -> str:
    """Return a count with thousands separators."""
    return f"{count:,.0f}"


def write_share(share: float) -> str:
    """Return a share as percentage."""
    return f"{share * 100:.1f}\N{NO-BREAK SPACE}%"


def write_power(exponent: int) -> str:
    """Ten to the power, as people write it: 10⁻⁵."""
    return "10" + str(exponent).translate(SUPERSCRIPTS)


def write_scientific(value: float, digits: int = 3) -> str:
    """Return a number as 2.5×10⁻⁵, which reads better in a column than 2.5e-05."""
    if not value or not math.isfinite(value):
        return write_fixed(value, 0)
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    power = write_power(int(exponent))
    return power if mantissa == "1" else f"{mantissa}×{power}"


def write_column(values: Sequence[float]) -> list[str]:
    """Write numbers that stand under each other with the same number of decimals."""
    finite = [abs(value) for value in values if math.isfinite(value) and value]
    if all(float(value).is_integer() for value in finite) and max(finite, default=0) < 1e15:
        return [write_fixed(value, 0) for value in values]
    if min(finite) < 1e-4 or max(finite) >= 1e7:
        return [write_scientific(value) for value in values]
    most = max(decimals_shown(max(finite), 4), decimals_shown(min(finite), 3))
    needed = [len(f"{value:.{most}f}".rstrip("0").partition(".")[2]) for value in finite]
    return [write_fixed(value, max(needed)) for value in values]


def write_fixed(value: float, decimals: int) -> str:
    return f"{value:,.{decimals}f}" if math.isfinite(value) else write_infinite(value)


def write_infinite(value: float) -> str:
    return MISSING if math.isnan(value) else "∞" if value > 0 else "−∞"


def decimals_shown(value: float, significant: int) -> int:
    return max(0, significant - 1 - math.floor(math.log10(value)))
