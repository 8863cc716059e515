"""Figures that summary and report draw from a profile: phases by rank, throughput, operator times, the verdict.

    for phases in measure_ranks(profile):
        print(phases.rank, phases.iteration.median_us, phases.data_tail.share)

Shares are of the whole time of the regular steps, so that they add up to 1 and that a loader which stalls every eighth
step shows, whose median is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal

from viaduct.profiling.advice import FEWEST_STEPS
from viaduct.profiling.figures import RECORDING, exposed_us, show_time
from viaduct.profiling.record import Advice, Ceilings, Operator, Profile, Step
from viaduct.profiling.roofline import place_under_roofline

UNEVEN = 0.1
"""Difference of the mean and the median, as a share of the iteration, from which on a phase is called uneven."""
COVERED = 0.7
"""Share of forward and backward pass that operators must cover before no advice means that nothing stands out."""
MOST_NAMED = 8
PHASE_NAMES = ("data tail", "forward + backward", "gradient aggregation and update tail")
SHORT_PHASE_NAMES = ("data tail", "forward + backward", "update tail")

Tone = Literal["good", "warn"]


@dataclass(frozen=True)
class PhaseFigure:
    """One of the four times of a rank's steps."""

    name: str
    median_us: float
    mean_us: float
    share: float  # of the whole time of the steps


@dataclass(frozen=True)
class RankFigures:
    """The four times of one rank, and its collectives; means and medians of its regular steps."""

    rank: int
    steps: int
    iteration: PhaseFigure
    phases: tuple[PhaseFigure, ...]  # in the order of PHASE_NAMES; empty where only iterations were measured
    collective_us: float | None  # mean of a step that has some; None without collectives
    exposed_us: float | None  # the part in which the rank computed nothing, where all collectives say so

    @property
    def uneven(self) -> list[PhaseFigure]:
        """Phases whose median hides what they take: most steps are short, a few very long."""
        limit = UNEVEN * self.iteration.mean_us
        return [phase for phase in self.phases if abs(phase.mean_us - phase.median_us) > limit]


@dataclass(frozen=True)
class Verdict:
    """The first sentence of summary and report."""

    tone: Tone
    headline: str


def measure_ranks(profile: Profile) -> list[RankFigures]:
    """Return the figures of each rank that has regular steps."""
    has_phases = profile.facts.phases_measured
    by_rank: dict[int, list[Step]] = {}
    for step in profile.regular_steps:
        by_rank.setdefault(step.rank, []).append(step)
    communicating: dict[int, list[Step]] = {}
    for step in profile.steps:  # also those under the operator profiler, the only ones whose collectives are seen
        if step.collectives:
            communicating.setdefault(step.rank, []).append(step)
    return [measure_rank(rank, by_rank[rank], communicating.get(rank, []), has_phases) for rank in sorted(by_rank)]


def measure_rank(
    rank: int, steps: Sequence[Step], communicating: Sequence[Step] = (), has_phases: bool = True
) -> RankFigures:
    """Return medians, means and shares of one rank's regular steps; collectives of those that communicate."""
    total = sum(step.iteration_us for step in steps)

    def measure(name: str, read: Callable[[Step], float | None]) -> PhaseFigure:
        times = [read(step) or 0.0 for step in steps]
        return PhaseFigure(name, median(times), fmean(times), sum(times) / total if total > 0 else 0.0)

    return RankFigures(
        rank=rank,
        steps=len(steps),
        iteration=measure("iteration", lambda step: step.iteration_us),
        phases=(
            measure(PHASE_NAMES[0], lambda step: step.data_tail_us),
            measure(PHASE_NAMES[1], lambda step: step.forward_backward_us),
            measure(PHASE_NAMES[2], lambda step: step.update_tail_us),
        )
        if has_phases
        else (),
        collective_us=measure_collectives(communicating),
        exposed_us=measure_exposed(communicating),
    )


def describe_uneven(ranks: Sequence[RankFigures]) -> list[str]:
    """Return a sentence for each phase that is uneven on some ranks."""
    sentences = []
    for index, name in enumerate(PHASE_NAMES):
        found = [figures for figures in ranks if any(phase.name == name for phase in figures.uneven)]
        if found:
            times = [figures.phases[index] for figures in found]
            means = write_range([phase.mean_us for phase in times])
            medians = write_range([phase.median_us for phase in times])
            where = f" on {name_ranks(found)}" if len(ranks) > 1 else ""
            sentences.append(f"Uneven{where}: {name}, mean {means} ms, median {medians} ms.")
    return sentences


def name_ranks(ranks: Sequence[RankFigures]) -> str:
    """Write the numbers of some ranks; of many how many there are."""
    if len(ranks) > MOST_NAMED:
        return f"{len(ranks)} ranks"
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(str(figures.rank) for figures in ranks)


def write_range(times_us: Sequence[float]) -> str:
    """Write the smallest and the largest of some times in milliseconds."""
    low, high = (
        f"{time / 1000:,.3g}" if time < 1e6 else f"{time / 1000:,.0f}" for time in (min(times_us), max(times_us))
    )
    return low if low == high else f"{low} to {high}"


def describe_left_out(profile: Profile) -> list[str]:
    """Return a sentence about timed steps that something else stands in; recorded steps are named elsewhere."""
    counts: dict[str, int] = {}
    for step in profile.steps:
        if step.interrupted_by and not is_recorded(step):
            counts[step.interrupted_by] = counts.get(step.interrupted_by, 0) + 1
    parts = [f"{count:,} step{'s' * (count != 1)} ({reason})" for reason, count in counts.items()]
    return [f"Not counted: {', '.join(parts)}."] if parts else []


def measure_collectives(steps: Sequence[Step]) -> float | None:
    """Return the mean time of collectives over the steps that have any; None where there was none."""
    sums = [sum(each.duration_us for each in step.collectives) for step in steps if step.collectives]
    return fmean(sums) if sums else None


def measure_exposed(steps: Sequence[Step]) -> float | None:
    """Return the mean exposed time over the steps with collectives, if every collective has one."""
    times = [[each.exposed_us for each in step.collectives] for step in steps if step.collectives]
    sums = [sum(time for time in found if time is not None) for found in times if None not in found]
    return fmean(sums) if sums and len(sums) == len(times) else None


def measure_throughput(profile: Profile) -> float | None:
    """Return samples per second of all ranks together, from the mean iteration; None where the batch is not known."""
    steps = profile.regular_steps
    if profile.facts.batch is None or not steps:
        return None
    mean_us = fmean(step.iteration_us for step in steps)
    return profile.facts.batch * max(profile.facts.ranks, 1) * 1e6 / mean_us if mean_us > 0 else None


def operator_time(operator: Operator) -> float:
    """Return the time that an operator takes itself: of its kernels, or of the host where it launched none."""
    return operator.self_us if operator.device_us is None else operator.device_us


def operators_of_first_rank(profile: Profile) -> list[Operator]:
    """Return the operators of the first rank that recorded some, longest first."""
    first = min((operator.rank for operator in profile.operators), default=0)
    return sorted(
        (operator for operator in profile.operators if operator.rank == first), key=operator_time, reverse=True
    )


def roofline_share(
    flops: float | None, bytes_: float | None, dtypes: str, time_us: float, ceilings: Ceilings | None
) -> float | None:
    """Return the time at the roofline divided by the time taken; None where that cannot be known."""
    if ceilings is None:
        return None
    placement = place_under_roofline(flops, bytes_, time_us, choose_dtype(dtypes, ceilings), ceilings)
    return None if placement is None else placement.reached


def choose_dtype(dtypes: str, ceilings: Ceilings) -> str:
    """Return the first dtype of an operator's inputs that has a ceiling; "" without any."""
    names = [name.strip().removeprefix("torch.") for name in dtypes.split(",")]
    return next((name for name in names if ceilings.flops.get(name, 0) > 0), "")


def judge(profile: Profile) -> Verdict:
    """Return the first sentence: the best advice, what was not measured, or that nothing stands out."""
    if profile.advice:
        return Verdict("warn", profile.advice[0].title)
    return judge_without_advice(profile)


def judge_without_advice(profile: Profile) -> Verdict:
    """Return what was not measured or not judged, or that nothing stands out."""
    missing = name_missing(profile) or describe_uncovered(profile)
    return Verdict("warn", missing) if missing else Verdict("good", "Nothing stands out")


def judge_beyond_advice(profile: Profile) -> str:
    """Return the sentence that follows the advice; "" where there is none, or where advice is the answer."""
    if not profile.advice:
        return ""
    uncovered = describe_uncovered(profile)
    if uncovered or not all(is_remark(advice, profile) for advice in profile.advice):
        return uncovered
    return name_missing(profile) or "Nothing else stands out"


def is_remark(advice: Advice, profile: Profile) -> bool:
    """Return True for advice that wins nothing on the processor that was profiled, only on an accelerator."""
    return profile.facts.device == "cpu" and advice.name == "synchronisation" and advice.gain_us is None


def describe_uncovered(profile: Profile) -> str:
    """Say how much of forward and backward pass lies in no operator, where that is too much to judge; else ""."""
    uncovered = measure_uncovered(profile)
    if uncovered is None:
        return ""
    return (
        f"{show_time(uncovered)} of a step's forward and backward pass lie in no operator: Python, waiting, "
        "or another process on these cores; they were not judged"
    )


def measure_uncovered(profile: Profile) -> float | None:
    """Return the time of forward and backward pass outside of operators and collectives; None where that is little.

    Recording makes a step longer, so that a timed step counts where it is the shorter one. On an accelerator operators
    return before they have run: the host's times cover nothing there.
    """
    operators = operators_of_first_rank(profile)
    if profile.facts.device != "cpu" or not profile.facts.phases_measured or not operators:
        return None
    steps = [step for step in profile.steps if is_recorded(step) and step.rank == operators[0].rank]
    if not steps:
        return None
    timed = profile.steps_of(operators[0].rank) or steps
    length = min(median(step.forward_backward_us for step in rows) for rows in (steps, timed))
    waits = median(exposed_us(row for row in step.collectives if row.start_us < step.backward_end_us) for step in steps)
    covered = waits + sum(row.self_us for row in operators if row.phase in ("forward", "backward"))
    return length - covered if covered < COVERED * length else None


def is_recorded(step: Step) -> bool:
    """Return True for a step under the operator profiler."""
    return RECORDING in step.interrupted_by.split(", ")


def name_missing(profile: Profile) -> str:
    """Say what was not measured and keeps an empty list of advice from being an all-clear; "" if it is one."""
    steps = len(profile.regular_steps)
    if not profile.steps:
        return "No step was measured: how long an iteration takes is not known, so nothing was judged"
    if steps < FEWEST_STEPS:
        measured = (
            f"{steps} of {len(profile.steps)} steps follows"
            if steps == 1
            else f"{steps} of {len(profile.steps)} steps follow"
        )
        return f"Too few steps to judge: {measured} another one directly, {FEWEST_STEPS} are needed"
    if not profile.operators and not profile.kernels:
        return "The four phases alone gave no advice; operators were not recorded, so nothing within them was judged"
    return ""
