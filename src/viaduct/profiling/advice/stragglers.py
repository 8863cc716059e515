"""One rank is slower than the others, which wait for it in every collective.

A rank's own time is its iteration without the exposed time of collectives (while it computes nothing). If ranks differ
by chance, now one and now another is the slowest; a straggler is slower in nearly every step. If too few steps have
collectives, only the data tails are compared, the times from the end of a step to the next forward pass: if all
iterations are equally long, the ranks wait for the one that begins its forward pass last.
"""

from __future__ import annotations

from statistics import mean, median

from viaduct.profiling.figures import Figures, show_time, sum_exposed_us
from viaduct.profiling.record import Advice, Step

CERTAINTY = 0.8  # from 0 to 1; of two equal gains, the more certain one is listed first
UNEVEN = 0.05
"""Least (max - min) / mean over ranks at which a rank counts as slow, as in Ascend's cluster analysis."""
STEADY = 0.25  # share of the median difference that about four of five steps must reach
LARGE = 0.25
"""Median of (max - min) / mean that is rarely due to chance. From this value on, n // 5 of n steps may miss STEADY,
below it only (n - 1) // 5."""
MIN_STEPS = 5
EQUALLY_LONG = 0.05
"""Largest difference of the ranks' iterations, as a share of an iteration, that counts as none: the ranks wait for each
other."""


def find(figures: Figures) -> Advice | None:
    """Return advice if the same rank is steadily slower."""
    rows = list_common_steps(figures.communicating_steps)
    if len(rows) < MIN_STEPS:
        return find_late_data(figures)
    own_times = {rank: median(own_us(row[rank]) for row in rows) for rank in rows[0]}
    slow, fast = max(own_times, key=own_times.__getitem__), min(own_times, key=own_times.__getitem__)
    gap = own_times[slow] - own_times[fast]
    # Differences of the two ranks' own times, step by step, as shares of the mean of all ranks.
    gaps = sorted((own_us(row[slow]) - own_us(row[fast])) / max(mean(map(own_us, row.values())), 1e-3) for row in rows)
    exceptions = (len(gaps) if median(gaps) >= LARGE else len(gaps) - 1) // 5
    least = gaps[exceptions]
    if median(gaps) <= UNEVEN or least < max(UNEVEN, STEADY * median(gaps)):
        return None
    step = median(row[slow].iteration_us for row in rows)
    kind = "recorded step" if any(step.is_recorded for row in rows for step in row.values()) else "step"
    scale = min(1.0, figures.iteration_us / step) if step else 0.0  # if these are recorded steps, timed ones are faster
    gain = estimate_gain(rows, own_times, slow, fast) * scale
    return Advice(
        name="stragglers",
        title=f"Rank {slow} is slower than the others, which wait up to {show_time(gap)} for it in each step",
        action=(
            f"Give every rank the same work: compare rank {slow}'s batch and sequence sizes, its data and the load and "
            f"clock of its device with rank {fast}'s. {describe_phase(rows, slow, fast)}"
        ),
        evidence=(
            f"Own time per {kind}, without waiting in collectives: "
            + ", ".join(f"rank {rank} {show_time(time)}" for rank, time in own_times.items())
            + f"; (max - min) / mean is {median(gaps):.0%}, in four of five of {len(rows)} steps {least:.0%} or more.",
        ),
        gain_us=gain,
        gain_basis=(
            "its additional time before the forward pass, without which no rank would wait"
            if is_before_forward(rows, slow, fast)
            else "the work of the slowest rank, spread evenly over all"
        ),
    )


def estimate_gain(rows: list[dict[int, Step]], own_times: dict[int, float], slow: int, fast: int) -> float:
    """Return the gain per step: late data could arrive in time, but work can only be spread over the ranks."""
    if is_before_forward(rows, slow, fast):
        return min(own_times[slow] - own_times[fast], compare_data_tails(rows, slow, fast))
    return own_times[slow] - mean(own_times.values())


def find_late_data(figures: Figures) -> Advice | None:
    """Return advice if one rank begins its forward pass late in most regular steps, and the others wait for it."""
    rows = list_common_steps(figures.steps_by_rank)
    if len(rows) < MIN_STEPS or not any(step.collectives for step in figures.profile.steps):
        return None
    lengths = {rank: median(row[rank].iteration_us for row in rows) for rank in rows[0]}
    tails = {rank: median(row[rank].data_tail_us or 0.0 for row in rows) for rank in rows[0]}
    slow, fast = max(tails, key=lambda rank: tails[rank]), min(tails, key=lambda rank: tails[rank])
    gaps = sorted((row[slow].data_tail_us or 0.0) - (row[fast].data_tail_us or 0.0) for row in rows)
    step, gap, least = figures.iteration_us, median(gaps), gaps[len(gaps) // 5]
    if max(lengths.values()) - min(lengths.values()) > EQUALLY_LONG * step:
        return None
    if gap <= UNEVEN * step or least < max(UNEVEN * step, STEADY * gap):
        return None
    return Advice(
        name="stragglers",
        title=f"Rank {slow} is slower than the others, which wait up to {show_time(gap)} for it in each step",
        action=f"Look at what rank {slow} does before its forward pass: its data take longer than rank {fast}'s.",
        evidence=(
            "Time before the forward pass: "
            + ", ".join(f"rank {rank} {show_time(time)}" for rank, time in tails.items())
            + f"; all ranks take {show_time(step)} a step, so the others wait meanwhile.",
        ),
        gain_us=gap,
        gain_basis=f"the time before the forward pass that rank {slow} has more than rank {fast}",
    )


def list_common_steps(steps: dict[int, list[Step]]) -> list[dict[int, Step]]:
    """Return a dictionary from rank to step for each step that all ranks have; [] for fewer than two ranks."""
    by_rank = {rank: {step.number: step for step in steps[rank]} for rank in steps}
    if len(by_rank) < 2:
        return []
    numbers = set.intersection(*(set(numbered) for numbered in by_rank.values()))
    return [{rank: numbered[number] for rank, numbered in by_rank.items()} for number in sorted(numbers)]


def own_us(step: Step) -> float:
    """Return the time of a step without the exposed time of its collectives."""
    return step.iteration_us - sum_exposed_us(step.collectives)


def compare_data_tails(rows: list[dict[int, Step]], slow: int, fast: int) -> float:
    """Return the median difference of two ranks' data tails."""
    return median((row[slow].data_tail_us or 0.0) - (row[fast].data_tail_us or 0.0) for row in rows)


def is_before_forward(rows: list[dict[int, Step]], slow: int, fast: int) -> bool:
    """Return True if most of the difference is before the forward pass."""
    return compare_data_tails(rows, slow, fast) > median(own_us(row[slow]) - own_us(row[fast]) for row in rows) / 2


def describe_phase(rows: list[dict[int, Step]], slow: int, fast: int) -> str:
    """Return a sentence with the phase of the difference: before the forward pass, or in the computation."""
    if is_before_forward(rows, slow, fast):
        data = show_time(compare_data_tails(rows, slow, fast))
        return f"{data} of the difference is before the forward pass: its data take longer."
    return "At least half of the difference is in its computation."
