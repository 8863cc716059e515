"""Durations on the command line: 90s, 10m, 1.5h."""

from __future__ import annotations

import re

from viaduct.errors import BadValue

SECONDS = {"s": 1, "m": 60, "h": 3600}
DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smh]?)")


def parse_duration(text: str, flag: str, default_unit: str = "") -> float:
    """Return the seconds of a duration; without `default_unit` the text needs a unit."""
    match = DURATION.fullmatch(text.strip().lower())
    unit = match and (match[2] or default_unit)
    seconds = float(match[1]) * SECONDS[unit] if match and unit else 0.0
    if not seconds > 0:
        raise BadValue(f"{flag} {text} is not a time above 0.", "Write it as 90s, 10m or 2h.")
    return seconds
