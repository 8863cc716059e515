"""The host spends time between steps that is neither the DataLoader's nor an operator's.

`loader` reports waits for a DataLoader. The remaining time between the update and the next forward pass in which no
operator runs is logging, writing, sleeping or other Python, which more workers would not shorten. If the rank with the
most of this time has no DataLoader, only `loader` may report it.
"""

from __future__ import annotations

from viaduct.profiling.figures import NOTABLE_SHARE, Figures, show_time
from viaduct.profiling.record import Advice

PRIORITY_AT_EQUAL_GAIN = 0.6


def find(figures: Figures) -> Advice | None:
    """Return advice if the host spends much time between steps and not in the loader."""
    time, rank = figures.host_time_between_steps
    wait = figures.loader_waits.get(rank)
    if wait is None or not figures.operators or figures.share(time) < NOTABLE_SHARE:
        return None
    on_rank = figures.name_rank(rank)
    return Advice(
        name="host_time",
        title=f"{figures.share(time):.0%} of each step{on_rank} is host time between steps, not waiting for the loader",
        action=(
            "Look at what runs between optimizer.step() and the next forward pass. Log and write less often, or in "
            "another thread. More workers of the DataLoader would not shorten it."
        ),
        evidence=(
            f"Between the update and the next forward pass lie {show_time(time)}{on_rank} of Python, files or waiting "
            f"that neither the DataLoader ({show_time(wait)}) nor an operator of torch accounts for; the step takes "
            f"{show_time(figures.iteration_us)}.",
        ),
        gain_us=time,
        gain_basis="at most the measured time",
    )
