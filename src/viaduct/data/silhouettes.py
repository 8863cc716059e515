"""Ten shapes as signed distances: negative inside, zero on the outline, positive outside.

Each has an area of one and its centre of mass at the origin; the numbers in the code follow from this. `x` points right
and `y` down. Distances are exact along straight edges, and elsewhere accurate enough for antialiasing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


def disc(x: Floats, y: Floats) -> Floats:
    return np.hypot(x, y) - 0.5642


def square(x: Floats, y: Floats) -> Floats:
    return box(x, y, 0.5, 0.5)


def triangle(x: Floats, y: Floats) -> Floats:
    slanted = 0.8660 * np.abs(x) - 0.5 * y
    return np.maximum(slanted, y) - 0.4387


def star(x: Floats, y: Floats) -> Floats:
    """Pentagram: the points on the outer side of at most one of its five lines."""
    angles = np.arange(5) * (2 * np.pi / 5) + np.pi / 2
    lines = [np.float32(np.cos(angle)) * x + np.float32(np.sin(angle)) * y for angle in angles]
    largest, second = np.maximum(lines[0], lines[1]), np.minimum(lines[0], lines[1])
    for line in lines[2:]:
        second = np.maximum(second, np.minimum(largest, line))
        largest = np.maximum(largest, line)
    return second - 0.2917


def cross(x: Floats, y: Floats) -> Floats:
    return np.minimum(box(x, y, 0.6708, 0.2236), box(x, y, 0.2236, 0.6708))


def ring(x: Floats, y: Floats) -> Floats:
    from_middle: Floats = np.abs(np.hypot(x, y) - 0.5303)
    return from_middle - 0.1501


def crescent(x: Floats, y: Floats) -> Floats:
    x = x - 0.2832
    return np.maximum(np.hypot(x, y) - 0.7919, 0.5939 - np.hypot(x - 0.3564, y))


def heart(x: Floats, y: Floats) -> Floats:
    """Square on its corner, with half a disc on each of its upper edges."""
    x, y = np.abs(x), y - 0.1657
    corner = 0.7071 * (x + np.abs(y)) - 0.3742
    return np.minimum(corner, np.hypot(x - 0.2646, y + 0.2646) - 0.3742)


def hourglass(x: Floats, y: Floats) -> Floats:
    x, y = np.abs(x), np.abs(y)
    return np.maximum(y - 0.72, 0.7682 * (x - 0.8333 * y - 0.0472))


def stripes(x: Floats, y: Floats) -> Floats:
    nearest = 0.54 * np.clip(np.rint(y / 0.54), -1, 1)
    return box(x, y - nearest, 0.66, 0.1263)


def box(x: Floats, y: Floats, half_width: float, half_height: float) -> Floats:
    """Return the signed distance to a rectangle around the origin."""
    return np.maximum(np.abs(x) - half_width, np.abs(y) - half_height)


SILHOUETTES: dict[str, Callable[[Floats, Floats], Floats]] = {
    outline.__name__: outline
    for outline in (disc, square, triangle, star, cross, ring, crescent, heart, hourglass, stripes)
}
