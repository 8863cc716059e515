"""Python's garbage collector interrupts steps.

profiling/garbage_pauses.py stores the long pauses in a table of the profile.
"""

from __future__ import annotations

from viaduct.profiling.figures import Figures, show_time
from viaduct.profiling.garbage_pauses import LONG_PAUSE_US, PAUSE_COLUMN, PAUSES_TABLE
from viaduct.profiling.record import Advice

CERTAINTY = 1.0  # from 0 to 1; of two equal gains, the more certain one is listed first


def find(figures: Figures) -> Advice | None:
    pauses = figures.read_column(PAUSES_TABLE, PAUSE_COLUMN)
    steps = sum(not step.is_recorded for step in figures.profile.steps)  # pauses are counted in all timed steps
    pause_us = sum(pauses) / steps  # per step
    if not figures.is_worthwhile(pause_us):
        return None
    return Advice(
        title=f"Garbage collection takes {figures.share_of_step(pause_us):.0%} of the steps",
        action="Call gc.freeze() after the set-up, or gc.disable() and gc.collect() once an epoch.",
        evidence=(
            f"{len(pauses)} pauses of {show_time(LONG_PAUSE_US)} or more in {steps} timed steps, the longest "
            f"{show_time(max(pauses))}, {show_time(sum(pauses))} in all.",
        ),
        gain_us=pause_us,
        gain_basis="the measured pauses, which would vanish",
    )
