"""The ten measures again, written straight from their definitions: whole arrays, exact sums, no pieces, no tricks.

Sums are exact (math.fsum) over float64 values, which are divided by a power of two before they are
squared, so that nothing overflows. Slow, and only for tests.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

EPS = 2.22e-16
FLOOR = 1.1920929e-07


def shrunk(values: np.ndarray) -> tuple[np.ndarray, int]:
    """Values divided by a power of two, without a rounding, so that the largest is about 1; and the power."""
    power = math.frexp(float(np.max(np.abs(values), initial=0.0)))[1]
    return np.ldexp(values, -power), power


def scale_by_power(value: float, power: int) -> float:
    with np.errstate(over="ignore"):
        return float(np.ldexp(value, power))  # Inf where it is no float64


def small_norm(values: np.ndarray) -> float:
    return math.sqrt(math.fsum(float(value) ** 2 for value in values))


def norm(values: np.ndarray) -> float:
    small, power = shrunk(values)
    return scale_by_power(small_norm(small), power)


def mean(values: np.ndarray) -> float:
    small, power = shrunk(values)
    return scale_by_power(math.fsum(map(float, small)) / values.size, power)


def root_mean_square(values: np.ndarray) -> float:
    small, power = shrunk(values)
    return scale_by_power(small_norm(small) / math.sqrt(values.size), power)


def deviation(values: np.ndarray) -> float:
    small, power = shrunk(values)
    apart, further = shrunk(small - mean(small))
    rounded = mean(apart)  # what the mean lost when it was rounded
    return scale_by_power(root_mean_square(apart - rounded), power + further)


def cosine(x: np.ndarray, y: np.ndarray) -> float:
    if norm(x) <= EPS and norm(y) <= EPS:
        return 1.0
    if norm(x) <= EPS or norm(y) <= EPS:
        return math.nan
    x, y = shrunk(x)[0], shrunk(y)[0]
    product = math.fsum(float(a) * float(b) for a, b in zip(x, y, strict=True))
    return max(-1.0, min(1.0, product / small_norm(x) / small_norm(y)))


def distance(errors: np.ndarray, y: np.ndarray) -> float:
    """The norm of the errors over the norm of y."""
    if norm(y) <= EPS:
        return 0.0
    (errors, error_size), (y, two) = shrunk(errors), shrunk(y)
    return scale_by_power(small_norm(errors) / small_norm(y), error_size - two)


def shares(values: np.ndarray, floored: bool) -> np.ndarray | None:
    low, high = float(values.min()), float(values.max())
    scale = 2.0**-1000 if max(abs(low), abs(high)) > 1e300 else 1.0
    raw = values if low == high else (values * scale - low * scale) / (high * scale - low * scale)
    if floored:
        raw = np.maximum(raw, FLOOR)
    if low == high:
        return None if raw[0] == 0.0 else np.full(values.size, 1.0 / values.size)
    return raw / math.fsum(map(float, raw))


def divergence(x: np.ndarray, y: np.ndarray, floored: bool = False) -> float:
    p, q = shares(x, floored), shares(y, floored)
    if p is None or q is None:
        return math.nan
    if np.any((q == 0.0) & (p > 0.0)):
        return math.inf
    return math.fsum(float(a) * (math.log(a) - math.log(b)) for a, b in zip(p, q, strict=True) if a > 0.0)


def measures(x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Both flattened to float64, all finite."""
    x, y = x.astype(np.float64).reshape(-1), y.astype(np.float64).reshape(-1)
    with np.errstate(all="ignore"):
        errors = np.abs(x - y)
        big = np.abs(y) > EPS
        terms = np.zeros(x.size)
        terms[big] = np.abs(x[big] / y[big] - 1.0) if np.isinf(errors).any() else errors[big] / np.abs(y[big])
    accumulated = math.fsum(map(float, terms))
    return {
        "cosine": None if x.size == 1 else cosine(x, y),
        "max_absolute": float(errors.max()),
        "accumulated_relative": accumulated,
        "relative_euclidean": distance(errors, y),
        "kld": divergence(x, y),
        "mean_absolute": mean(errors),
        "root_mean_square": root_mean_square(errors),
        "max_relative": float(terms.max()),
        "mean_relative": accumulated / x.size,
    }
