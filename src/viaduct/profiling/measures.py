"""Figures of a profile for summary and report: phases by rank, throughput, time outside operators, and the headline.

    for figures in measure_ranks(profile):
        print(figures.rank, figures.iteration.median_us, [phase.share for phase in figures.phases])

A regular step directly follows another one, without an interruption such as an evaluation. Phases, as the Ascend
documents define them: the data tail from the end of the previous step to the start of the forward pass, forward +
backward, and the update tail from the end of the backward pass to the end of the step. The shares of a rank's phases
are of the total time of its regular steps. So they add up to 1, and show a loader that stalls every eighth step,
although the median of its waits is zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal

from viaduct.profiling.advice import MIN_STEPS, UNMEASURED_NOTE
from viaduct.profiling.figures import show_time, sum_exposed_us
from viaduct.profiling.record import Advice, Ceilings, Facts, Kernel, Operator, Profile, Step
from viaduct.profiling.roofline import compute_roofline_share

UNEVEN = 0.1
"""Difference of a phase's mean and median, as a share of the iteration, above which the phase is called uneven."""
MIN_OPERATOR_SHARE = 0.7
"""Least share of the forward and backward pass that operators must explain; below it, the summary says so."""
MAX_NAMED = 8  # largest number of ranks that a sentence lists
PHASES_UNKNOWN = "Phases are not known for all steps, perhaps for none: only iterations are shown."
PHASE_NAMES = ("data tail", "forward + backward", "gradient aggregation and update tail")
SHORT_PHASE_NAMES = ("data tail", "forward + backward", "update tail")
PHASE_TIMES: tuple[Callable[[Step], float | None], ...] = (
    lambda step: step.data_tail_us,
    lambda step: step.forward_backward_us,
    lambda step: step.update_tail_us,
)

Tone = Literal["good", "warn"]


@dataclass(frozen=True)
class PhaseFigure:
    """The iteration of a rank, or one of its three phases, over the rank's steps."""

    name: str
    median_us: float
    mean_us: float
    share: float  # of the total time of the steps


@dataclass(frozen=True)
class RankFigures:
    """Iteration and phases of one rank, over its regular steps; collectives over all its steps that have some."""

    rank: int
    steps: int
    iteration: PhaseFigure
    phases: tuple[PhaseFigure, ...]  # in the order of PHASE_NAMES; empty if only iterations were measured
    collective_us: float | None  # time of a step's collectives: mean over the steps that have some; None if none has
    exposed_us: float | None  # part of `collective_us` in which the rank computes nothing; None unless known for all

    @property
    def uneven_phases(self) -> list[PhaseFigure]:
        """Phases whose median is far from their mean, such as waits that are long in a few steps."""
        limit = UNEVEN * self.iteration.mean_us
        return [phase for phase in self.phases if abs(phase.mean_us - phase.median_us) > limit]


@dataclass(frozen=True)
class Headline:
    """Sentence that the report begins with: the best advice, or the reason why there is no advice."""

    tone: Tone
    text: str


def measure_ranks(profile: Profile) -> list[RankFigures]:
    """Return the figures of each rank that has regular steps."""
    return [measure_rank(profile, rank) for rank in sorted({step.rank for step in profile.regular_steps})]


def measure_rank(profile: Profile, rank: int) -> RankFigures:
    """Return the figures of a rank that has regular steps."""
    steps = profile.regular_steps_of(rank)
    total = sum(step.iteration_us for step in steps)
    # Recorded steps are included here, because only they have collectives in viaduct's own profiles.
    communicating = [step.collectives for step in profile.steps if step.rank == rank and step.collectives]
    durations = [sum(row.duration_us for row in collectives) for collectives in communicating]
    is_exposed_known = all(row.exposed_us is not None for collectives in communicating for row in collectives)

    def measure(name: str, read: Callable[[Step], float | None]) -> PhaseFigure:
        times = [read(step) or 0.0 for step in steps]
        return PhaseFigure(name, median(times), fmean(times), sum(times) / total if total > 0 else 0.0)

    return RankFigures(
        rank=rank,
        steps=len(steps),
        iteration=measure("iteration", lambda step: step.iteration_us),
        phases=tuple(map(measure, PHASE_NAMES, PHASE_TIMES)) if profile.facts.phases_measured else (),
        collective_us=fmean(durations) if durations else None,
        exposed_us=fmean(map(sum_exposed_us, communicating)) if communicating and is_exposed_known else None,
    )


def list_conditions(facts: Facts) -> list[str]:
    """Return the known conditions of a run: ranks, batch, precision, mode."""
    ranks = f"{facts.ranks} ranks" if facts.ranks != 1 else ""
    batch = f"batch {facts.batch:,}" if facts.batch is not None else ""
    return [condition for condition in (ranks, batch, facts.precision, facts.mode) if condition]


def describe_uneven(ranks: Sequence[RankFigures]) -> list[str]:
    """Return a sentence for each phase that is uneven on some ranks."""
    sentences = []
    for index, name in enumerate(PHASE_NAMES):
        uneven = [figures for figures in ranks if any(phase.name == name for phase in figures.uneven_phases)]
        if uneven:
            means = format_range([figures.phases[index].mean_us for figures in uneven])
            medians = format_range([figures.phases[index].median_us for figures in uneven])
            on_ranks = f" on {name_ranks(uneven)}" if len(ranks) > 1 else ""
            sentences.append(f"Uneven{on_ranks}: {name}, mean {means} ms, median {medians} ms.")
    return sentences


def name_ranks(ranks: Sequence[RankFigures]) -> str:
    """Return "ranks 1, 4"; for more than MAX_NAMED ranks only their number."""
    if len(ranks) > MAX_NAMED:
        return f"{len(ranks)} ranks"
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(str(figures.rank) for figures in ranks)


def format_range(times_us: Sequence[float]) -> str:
    """Return the smallest and the largest of some times in milliseconds."""
    low, high = (
        f"{time / 1000:,.3g}" if time < 1e6 else f"{time / 1000:,.0f}" for time in (min(times_us), max(times_us))
    )
    return low if low == high else f"{low} to {high}"


def describe_left_out(steps: Iterable[Step]) -> list[str]:
    """Return a sentence that counts interrupted steps by their interruptions."""
    counts = Counter(step.interrupted_by for step in steps)
    parts = [f"{count_steps(count)} ({interruptions})" for interruptions, count in counts.items()]
    return [f"Not counted: {', '.join(parts)}."] if parts else []


def count_steps(count: int) -> str:
    return f"{count:,} step{'s' * (count != 1)}"


def measure_throughput(profile: Profile) -> float | None:
    """Return samples per second of all ranks together, from the mean iteration; None if it or the batch is unknown."""
    steps = profile.regular_steps
    if profile.facts.batch is None or not steps:
        return None
    mean_us = fmean(step.iteration_us for step in steps)
    return profile.facts.batch * max(profile.facts.ranks, 1) * 1e6 / mean_us if mean_us > 0 else None


def list_first_rank_operators(profile: Profile) -> list[Operator]:
    """Return the operators of the first rank that recorded some, longest first."""
    rank = min((operator.rank for operator in profile.operators), default=0)
    operators = [operator for operator in profile.operators if operator.rank == rank]
    return sorted(operators, key=lambda operator: operator.device_or_self_us, reverse=True)


def find_roofline_share(row: Operator | Kernel, ceilings: Ceilings | None) -> float | None:
    """Return the share of the roofline that an operator or kernel reaches; None if it is not known."""
    if isinstance(row, Operator):
        return compute_roofline_share(row.flops, row.bytes, row.dtypes, row.device_or_self_us, ceilings)
    return compute_roofline_share(row.flops, row.bytes, row.dtype, row.time_us, ceilings)


def choose_headline(profile: Profile) -> Headline:
    """Return the headline: the best advice, a missing measurement, or "Nothing stands out"."""
    if profile.advice:
        return Headline("warn", profile.advice[0].title)
    missing = describe_missing_measurement(profile) or describe_time_outside_operators(profile)
    return Headline("warn", missing) if missing else Headline("good", "Nothing stands out")


def make_closing_sentence(profile: Profile) -> str:
    """Return the sentence below the advice; "" if there is no advice, or if it needs no addition.

    The sentence is about time that was not judged. In a profile of a CPU whose advice concerns only accelerators,
    it may also name a missing measurement, or say that nothing else stands out.
    """
    if not profile.advice:
        return ""
    not_judged = describe_time_outside_operators(profile)
    if not_judged or not all(concerns_only_accelerators(advice, profile) for advice in profile.advice):
        return not_judged
    return describe_missing_measurement(profile) or "Nothing else stands out"


def concerns_only_accelerators(advice: Advice, profile: Profile) -> bool:
    """Return True for advice from a profile of a CPU that would gain time on accelerators only."""
    return profile.facts.device == "cpu" and advice.name == "synchronisation" and advice.gain_us is None


def describe_time_outside_operators(profile: Profile) -> str:
    """Return a sentence about the time outside operators if that is a large part of a step; else ""."""
    outside_us = measure_time_outside_operators(profile)
    if outside_us is None:
        return ""
    return (
        f"{show_time(outside_us)} of a step's forward and backward pass lie in no operator: Python, waiting, "
        "or another process on these cores; they were not judged"
    )


def measure_time_outside_operators(profile: Profile) -> float | None:
    """Return the time of forward and backward pass outside operators and collectives.

    None if it is not measured, or if operators and collectives explain at least MIN_OPERATOR_SHARE. Recording makes
    steps longer, so the length of both passes is the smaller median of timed and recorded steps. On an accelerator the
    time is not measured, because operators return before their kernels have run.
    """
    operators = list_first_rank_operators(profile)
    if profile.facts.device != "cpu" or not profile.facts.phases_measured or not operators:
        return None
    steps = [step for step in profile.steps if step.is_recorded and step.rank == operators[0].rank]
    if not steps:
        return None
    timed = profile.regular_steps_of(operators[0].rank) or steps
    length = min(median(step.forward_backward_us for step in rows) for rows in (steps, timed))
    waits = median(
        sum_exposed_us(row for row in step.collectives if row.start_us < step.backward_end_us) for step in steps
    )
    explained = waits + sum(row.self_us for row in operators if row.phase in ("forward", "backward"))
    return length - explained if explained < MIN_OPERATOR_SHARE * length else None


def explain_missing_iterations(profile: Profile) -> str:
    """Return the reason why no iteration time is known: there is no regular step."""
    if not profile.steps:
        return "no step was measured"
    if len(profile.steps) == 1:
        return "one step was measured, and an iteration begins at the end of the previous step"
    return "no step follows another one without an interruption"


def describe_missing_measurement(profile: Profile) -> str:
    """Return a sentence about a missing measurement without which advice is incomplete; "" if none is missing."""
    steps = len(profile.regular_steps)
    if not profile.steps:
        return "No step was measured: how long an iteration takes is not known, so nothing was judged"
    if steps < MIN_STEPS:
        verb = "follows" if steps == 1 else "follow"
        regular = f"{steps} of {len(profile.steps)} steps {verb} another one without an interruption"
        return f"Too few steps to judge: {regular}, {MIN_STEPS} are needed"
    if not profile.operators and not profile.kernels:
        return "The phases alone gave no advice; operators were not recorded, so nothing within them was judged"
    if profile.facts.device != "cpu" and not profile.kernels:
        return "The host's operators gave no advice; kernels were not recorded, so the device's time was not judged"
    if any(note.startswith(UNMEASURED_NOTE) for note in profile.facts.notes):
        return "The figures gave no advice; the notes name what was not judged, because it was not measured"
    return ""
