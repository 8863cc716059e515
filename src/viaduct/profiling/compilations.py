"""Compilations by torch.compile: number of graphs, time, and reasons for recompilation.

    compilations = Compilations()
    compilations.register_callbacks()                   # in every step: has an effect once torch._dynamo is imported
    graphs, time_us = compilations.take_new_counts()    # since the last call
    compilations.list_new_reasons()                     # "train.py:12 forward: tensor 'x' size mismatch at index 0 …"

torch has no public interface for this. If a release lacks one of the names used here, the figure stays zero; for the
time, `missing_note` says so.
"""

from __future__ import annotations

import sys
from typing import Any

from viaduct.profiling.clocks import read_host_us

RECOMPILATION_NOTE = "compiled again: "
"""Prefix of a profile's notes about reasons for recompilation; the advice `recompilation` shows them."""
MAX_REASON_CHARS = 300
MAX_REASONS = 5  # in a profile


class Compilations:
    """Counts compiled graphs and adds up the time that compiling took."""

    def __init__(self) -> None:
        self.missing_note = ""  # a sentence if this release of torch does not report the time
        self._old_reasons = set(list_reasons())
        self._is_registered = False
        self._graphs = 0
        self._time_us = 0.0
        self._began_us: float | None = None

    def register_callbacks(self) -> None:
        """Register callbacks with torch._dynamo, once, if it is imported."""
        if self._is_registered or "torch._dynamo.utils" not in sys.modules:
            return
        self._is_registered = True
        self._graphs = count_graphs()
        try:
            from torch._dynamo.callback import callback_handler

            handler: Any = callback_handler
            handler.register_start_callback(self._on_begin)
            handler.register_end_callback(self._on_end)
        except (ImportError, AttributeError):
            self.missing_note = "how long torch.compile took is not known: this torch has no compilation callbacks."

    def _on_begin(self, *args: Any) -> None:
        self._began_us = read_host_us()

    def _on_end(self, *args: Any) -> None:
        if self._began_us is not None:
            self._time_us += read_host_us() - self._began_us
            self._began_us = None

    def take_new_counts(self) -> tuple[int, float]:
        """Return the number of graphs and the microseconds since the last call."""
        if not self._is_registered:
            return 0, 0.0
        graphs = count_graphs()
        new = max(0, graphs - self._graphs)  # torch._dynamo.reset() begins again at zero
        self._graphs = graphs
        time_us, self._time_us = self._time_us, 0.0
        return new, time_us

    def list_new_reasons(self) -> list[str]:
        """Return torch's reasons for recompilations since this object was made: MAX_REASONS, then how many more."""
        reasons = [reason for reason in list_reasons() if reason not in self._old_reasons]
        omitted = [f"{len(reasons) - MAX_REASONS} more reasons"] if len(reasons) > MAX_REASONS else []
        return reasons[:MAX_REASONS] + omitted


def count_graphs() -> int:
    """Return the number of graphs that this process has compiled; 0 if torch does not report it."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    counters = getattr(utils, "counters", {})
    return int(counters["stats"]["unique_graphs"]) if "stats" in counters else 0


def list_reasons() -> list[str]:
    """Return the distinct reasons for recompilations ("guard failures") of this process.

    Each is a text "FILE:LINE FUNCTION: REASON".
    """
    utils: Any = sys.modules.get("torch._dynamo.utils")
    failures: dict[Any, list[Any]] = dict(getattr(utils, "guard_failures", {}))
    lines = []
    for code, reasons in failures.items():
        file = str(getattr(code, "co_filename", "")).rsplit("/", 1)[-1]
        location = f"{file}:{getattr(code, 'co_firstlineno', 0)} {getattr(code, 'co_name', '')}"
        lines += [f"{location}: {' '.join(str(reason).split())[:MAX_REASON_CHARS]}" for reason in reasons]
    return list(dict.fromkeys(lines))
