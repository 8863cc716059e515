"""Memory over time, thinned for a report without losing its peak."""

from __future__ import annotations

from collections.abc import Sequence

from .record import MemoryPoint

MOST_POINTS = 4000


def thin_points(points: Sequence[MemoryPoint], most: int = MOST_POINTS) -> list[MemoryPoint]:
    """Return at most `most` points in order of time: of each stretch the highest."""
    ordered = sorted(points, key=lambda point: point.time_us)
    if len(ordered) <= most:
        return ordered
    length = -(-len(ordered) // most)
    stretches = [ordered[start : start + length] for start in range(0, len(ordered), length)]
    return [max(stretch, key=lambda point: point.allocated) for stretch in stretches]
