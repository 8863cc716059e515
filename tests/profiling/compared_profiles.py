"""Profiles of two runs to compare, made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from viaduct.profiling.record import Facts, Profile, Step


def make_steps(data: Sequence[float], compute: float = 1000.0, update: float = 100.0) -> list[Step]:
    """Return one step for each data tail."""
    steps, end = [], 0.0
    for number, tail in enumerate(data):
        forward = end + tail
        steps.append(Step(0, number, forward, forward + compute, forward + compute + update, end))
        end = forward + compute + update
    return steps


def make_run(source: str = "a", **parts: Any) -> Profile:
    facts = parts.pop("facts", {})
    return Profile(Facts(source, "script", **facts), **parts)


STEADY = [100.0, 102.0, 99.0, 101.0, 100.0, 98.0, 103.0, 100.0]
NOISY = [100.0, 900.0, 300.0, 50.0, 700.0, 500.0, 150.0, 800.0]
