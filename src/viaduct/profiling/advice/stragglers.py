"""One rank is slower than the others, which wait for it in every collective.

A rank's own time is its iteration without the time in which a collective kept it waiting. Ranks that differ by
chance take turns in being the slowest; a straggler is slower in nearly every step.
"""

from __future__ import annotations

from statistics import mean, median

from viaduct.profiling.figures import Figures, exposed_us, show_time
from viaduct.profiling.record import Advice, Step

CERTAINTY = 0.8
UNEVEN = 0.05
"""(max - min) / mean over ranks from which a rank counts as slow: the limit of Ascend's cluster analysis."""
STEADY = 0.25
"""Share of the usual difference that four steps of five must show: a rank that is slow by chance is not so steady."""
LARGE = 0.25
"""Difference that chance hardly ever reaches: one step in five may be an exception; of a smaller one fewer."""
FEWEST_STEPS = 5


def find(figures: Figures) -> Advice | None:
    """Return advice where the same rank is steadily slower."""
    rows = list_common_steps(figures)
    if len(rows) < FEWEST_STEPS:
        return None
    own = {rank: median(own_us(steps[rank]) for steps in rows) for rank in rows[0]}
    slow, fast = max(own, key=lambda rank: own[rank]), min(own, key=lambda rank: own[rank])
    gap = own[slow] - own[fast]
    gaps = sorted(compare_ranks(steps, slow, fast) for steps in rows)
    exceptions = (len(gaps) if median(gaps) >= LARGE else len(gaps) - 1) // 5  # of five steps one, or none
    least = gaps[exceptions]
    if median(gaps) <= UNEVEN or least < max(UNEVEN, STEADY * median(gaps)):
        return None
    step = median(row[slow].iteration_us for row in rows)
    gain = (own[slow] - mean(own.values())) / step * figures.iteration_us
    return Advice(
        name="stragglers",
        title=f"Rank {slow} is slower than the others, which wait {show_time(gap)} for it in each step",
        action=(
            f"Give every rank the same work: compare rank {slow}'s batch and sequence sizes, its data and the load and "
            f"clock of its device with rank {fast}'s. {name_phase(rows, slow, fast)}"
        ),
        evidence=(
            "Own time per step, without waiting in collectives: "
            + ", ".join(f"rank {rank} {show_time(time)}" for rank, time in own.items())
            + f"; (max - min) / mean is {median(gaps):.0%}, in four of five of {len(rows)} steps {least:.0%} or more.",
        ),
        gain_us=gain,
        gain_basis="the work of the slowest rank, spread evenly over all",
    )


def list_common_steps(figures: Figures) -> list[dict[int, Step]]:
    """Return the steps with collectives that all ranks have, by rank."""
    steps = figures.communicating_steps
    by_rank = {rank: {step.number: step for step in steps[rank]} for rank in steps}
    if len(by_rank) < 2:
        return []
    numbers = set.intersection(*(set(steps) for steps in by_rank.values()))
    return [{rank: steps[number] for rank, steps in by_rank.items()} for number in sorted(numbers)]


def own_us(step: Step) -> float:
    """Return the time of a step in which this rank did not wait for others."""
    return step.iteration_us - exposed_us(step.collectives)


def compare_ranks(steps: dict[int, Step], slow: int, fast: int) -> float:
    """Return how much longer one rank's own time was than another's in a step, as a share of the mean of all ranks."""
    return (own_us(steps[slow]) - own_us(steps[fast])) / max(mean(map(own_us, steps.values())), 1e-3)


def name_phase(rows: list[dict[int, Step]], slow: int, fast: int) -> str:
    """Say which part of the step differs most, where the collectives do not lie in it."""
    data = median((row[slow].data_tail_us or 0.0) - (row[fast].data_tail_us or 0.0) for row in rows)
    total = median(own_us(row[slow]) - own_us(row[fast]) for row in rows)
    if data > total / 2:
        return f"{show_time(data)} of the difference lie before the forward pass: its data take longer."
    return "The difference lies in its computation, not in its data."
