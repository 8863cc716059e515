"""Pauses in which Python's garbage collector ran, while steps were timed.

pauses = GarbagePauses(is_timed=lambda: True)
pauses.start(); …; pauses.stop()
pauses.make_tables()    # {"garbage collection": {"columns": ["generation", "pause_us"], "rows": [[2, 1480.2]]}}
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from viaduct.profiling.clocks import read_host_us

PAUSES_TABLE, PAUSE_COLUMN = "garbage collection", "pause_us"
LONG_PAUSE_US = 1000.0  # shorter pauses are left out, as in the Ascend advisor


class GarbagePauses:
    """Records long pauses from `start` to `stop`."""

    def __init__(self, is_timed: Callable[[], bool]) -> None:
        """Create a listener; a pause counts if `is_timed` returns True at its end."""
        self.rows: list[list[float]] = []  # of each pause: generation of the collected objects, and microseconds
        self._is_timed = is_timed
        self._began_us: float | None = None

    def start(self) -> None:
        """Start listening; a second call does nothing."""
        if self._observe not in gc.callbacks:
            gc.callbacks.append(self._observe)

    def stop(self) -> None:
        """Stop listening; a second call does nothing."""
        if self._observe in gc.callbacks:
            gc.callbacks.remove(self._observe)

    def make_tables(self) -> dict[str, Any]:
        """Return the table for `Profile.tables`, or no table without a long pause."""
        return {PAUSES_TABLE: {"columns": ["generation", PAUSE_COLUMN], "rows": self.rows}} if self.rows else {}

    def _observe(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began_us = read_host_us()
        elif self._began_us is not None:
            pause = read_host_us() - self._began_us
            self._began_us = None
            if pause >= LONG_PAUSE_US and self._is_timed():
                self.rows.append([info["generation"], pause])
