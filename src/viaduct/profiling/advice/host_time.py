"""The host spends time between steps in which it neither waits for the DataLoader nor runs an operator of torch.

This time, from the update to the next forward pass, is logging, writing, sleeping or other Python; more workers of the
DataLoader would not shorten it. A script without a DataLoader may prepare its batches there: the rule `loader` reports
that case, and all waits for a DataLoader.
"""

from __future__ import annotations

from viaduct.profiling.figures import NOTABLE_SHARE, Figures, show_time
from viaduct.profiling.record import Advice

CERTAINTY = 0.6  # from 0 to 1; of two equal gains, the more certain one is listed first


def find(figures: Figures) -> Advice | None:
    """Return advice if the host spends much time between steps and not in the loader."""
    time, rank = figures.host_time_between_steps
    wait = figures.loader_waits.get(rank)  # None without a DataLoader
    share = figures.share_of_step(time)
    # Without recorded operators, the time could be theirs.
    if wait is None or not figures.operators or share < NOTABLE_SHARE:
        return None
    on_rank = figures.name_rank(rank)
    return Advice(
        title=f"{share:.0%} of each step{on_rank} is host time between steps, not waiting for the loader",
        action=(
            "Look at what runs between optimizer.step() and the next forward pass. Log and write less often, or in "
            "another thread. More workers of the DataLoader would not shorten it."
        ),
        evidence=(
            f"Between the update and the next forward pass, the host spends {show_time(time)}{on_rank} outside torch's "
            f"operators, besides {show_time(wait)} in the DataLoader; the step takes "
            f"{show_time(figures.iteration_us)}.",
        ),
        gain_us=time,
        gain_basis="at most the measured time",
    )
