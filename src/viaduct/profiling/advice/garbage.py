"""Python's garbage collector interrupts steps.

A collector of profiles that watches `gc.callbacks` writes the table "garbage collection" with a row for each pause.
"""

from __future__ import annotations

from viaduct.profiling.figures import WORTH, Figures, show_time
from viaduct.profiling.record import Advice

CERTAINTY = 1.0
TABLE = "garbage collection"
COLUMN = "pause_us"
LONG_US = 1000.0
"""Pause from which a collection is counted: the limit of the Ascend advisor."""


def find(figures: Figures) -> Advice | None:
    pauses = [pause for pause in figures.read_column(TABLE, COLUMN) if pause >= LONG_US]
    time = sum(pauses) / len(figures.steps)
    if figures.share(time) < WORTH:
        return None
    return Advice(
        name="garbage",
        title=f"Garbage collection takes {figures.share(time):.0%} of the steps",
        action="Call gc.freeze() after the set-up, or gc.disable() and gc.collect() once an epoch.",
        evidence=(
            f"{len(pauses)} pauses of {show_time(LONG_US)} or more in {len(figures.steps)} steps, the longest "
            f"{show_time(max(pauses))}, {show_time(sum(pauses))} in all.",
        ),
        gain_us=time,
        gain_basis="the measured pauses, which would vanish",
    )
