"""One rank is slower than the others, which wait for it in every collective.

A rank's own time is its iteration without the exposed time of collectives (while it computes nothing). If ranks differ
by chance, now one and now another is the slowest; a straggler is slower in about four of five steps. If too few steps
have collectives, only the data tails are compared, the times from the end of a step to the next forward pass: if all
iterations are equally long, the ranks wait for the one that begins its forward pass last.

The lag of the slowest rank is its own time (or data tail) minus that of the fastest rank in the same step.
"""

from __future__ import annotations

from statistics import mean, median

from viaduct.profiling.figures import Figures, show_time, sum_exposed_us
from viaduct.profiling.record import Advice, Step

CERTAINTY = 0.8  # from 0 to 1; of two equal gains, the more certain one is listed first
MAX_EVEN_LAG = 0.05
"""Median lag above which a rank counts as slow, as in Ascend's cluster analysis: as a share of the mean own time of the
ranks, or, if data tails are compared, of the step."""
STEADY_SHARE = 0.25  # about four of five steps must have a lag of at least this share of the median lag
LARGE_LAG = 0.25
"""Median lag, as a share of the mean own time, that is rarely due to chance. From this value on, n // 5 of n steps may
have a smaller lag than STEADY_SHARE demands, below it only (n - 1) // 5."""
MIN_STEPS = 5
EQUALLY_LONG = 0.05
"""Largest difference of the ranks' iterations, as a share of an iteration, that counts as none: the ranks wait for each
other."""


def find(figures: Figures) -> Advice | None:
    """Return advice if the same rank is steadily slower."""
    steps = list_common_steps(figures.communicating_steps)
    if len(steps) < MIN_STEPS:
        return find_late_data(figures)
    own_times = {rank: median(own_us(step_of[rank]) for step_of in steps) for rank in steps[0]}
    slow, fast = max(own_times, key=own_times.__getitem__), min(own_times, key=own_times.__getitem__)
    # The lag in each step, as a share of the mean own time of all ranks.
    lags = sorted(
        (own_us(step_of[slow]) - own_us(step_of[fast])) / max(mean(map(own_us, step_of.values())), 1e-3)
        for step_of in steps
    )
    exceptions = (len(lags) if median(lags) >= LARGE_LAG else len(lags) - 1) // 5
    least = lags[exceptions]  # without the smallest ones, which are the exceptions
    if median(lags) <= MAX_EVEN_LAG or least < max(MAX_EVEN_LAG, STEADY_SHARE * median(lags)):
        return None
    wait_us = own_times[slow] - own_times[fast]
    step_us = median(step_of[slow].iteration_us for step_of in steps)
    kind = "recorded step" if any(step.is_recorded for step_of in steps for step in step_of.values()) else "step"
    # Recorded steps, which run under the operator profiler, are longer than those that `iteration_us` is taken from.
    scale = min(1.0, figures.iteration_us / step_us) if step_us else 0.0
    gain = estimate_gain(steps, own_times, slow, fast) * scale
    return Advice(
        title=f"Rank {slow} is slower than the others, which wait up to {show_time(wait_us)} for it in each step",
        action=(
            f"Give every rank the same work: compare rank {slow}'s batch and sequence sizes, its data and the load and "
            f"clock of its device with rank {fast}'s. {describe_phase(steps, slow, fast)}"
        ),
        evidence=(
            f"Own time per {kind}, without waiting in collectives: "
            + ", ".join(f"rank {rank} {show_time(time)}" for rank, time in own_times.items())
            + f"; rank {slow} takes longer than rank {fast} by {median(lags):.0%} of the mean (median of {len(steps)} "
            f"steps), in four of five steps by {least:.0%} or more.",
        ),
        gain_us=gain,
        gain_basis=(
            "its additional time before the forward pass, without which no rank would wait"
            if is_before_forward(steps, slow, fast)
            else "the work of the slowest rank, spread evenly over all"
        ),
    )


def estimate_gain(steps: list[dict[int, Step]], own_times: dict[int, float], slow: int, fast: int) -> float:
    """Return the gain per step: late data could arrive in time, but work can only be spread over the ranks."""
    if is_before_forward(steps, slow, fast):
        return min(own_times[slow] - own_times[fast], compare_data_tails(steps, slow, fast))
    return own_times[slow] - mean(own_times.values())


def find_late_data(figures: Figures) -> Advice | None:
    """Return advice if one rank begins its forward pass late in most steps, and the others wait for it."""
    steps = list_common_steps(figures.steps_by_rank)
    if len(steps) < MIN_STEPS or not any(step.collectives for step in figures.profile.steps):
        return None
    lengths = {rank: median(step_of[rank].iteration_us for step_of in steps) for rank in steps[0]}
    tails = {rank: median(step_of[rank].data_tail_us or 0.0 for step_of in steps) for rank in steps[0]}
    slow, fast = max(tails, key=lambda rank: tails[rank]), min(tails, key=lambda rank: tails[rank])
    lags_us = sorted((step_of[slow].data_tail_us or 0.0) - (step_of[fast].data_tail_us or 0.0) for step_of in steps)
    step_us, lag_us, least_us = figures.iteration_us, median(lags_us), lags_us[len(lags_us) // 5]
    if max(lengths.values()) - min(lengths.values()) > EQUALLY_LONG * step_us:
        return None
    if lag_us <= MAX_EVEN_LAG * step_us or least_us < max(MAX_EVEN_LAG * step_us, STEADY_SHARE * lag_us):
        return None
    return Advice(
        title=f"Rank {slow} is slower than the others, which wait up to {show_time(lag_us)} for it in each step",
        action=f"Look at what rank {slow} does before its forward pass: its data take longer than rank {fast}'s.",
        evidence=(
            "Time before the forward pass: "
            + ", ".join(f"rank {rank} {show_time(time)}" for rank, time in tails.items())
            + f"; all ranks take {show_time(step_us)} a step, so the others wait meanwhile.",
        ),
        gain_us=lag_us,
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


def compare_data_tails(steps: list[dict[int, Step]], slow: int, fast: int) -> float:
    """Return the median difference of two ranks' data tails."""
    return median((step_of[slow].data_tail_us or 0.0) - (step_of[fast].data_tail_us or 0.0) for step_of in steps)


def is_before_forward(steps: list[dict[int, Step]], slow: int, fast: int) -> bool:
    """Return True if most of the difference is before the forward pass."""
    return (
        compare_data_tails(steps, slow, fast)
        > median(own_us(step_of[slow]) - own_us(step_of[fast]) for step_of in steps) / 2
    )


def describe_phase(steps: list[dict[int, Step]], slow: int, fast: int) -> str:
    """Return a sentence with the phase of the difference: before the forward pass, or in the computation."""
    if is_before_forward(steps, slow, fast):
        data = show_time(compare_data_tails(steps, slow, fast))
        return f"{data} of the difference is before the forward pass: its data take longer."
    return "At least half of the difference is in its computation."
