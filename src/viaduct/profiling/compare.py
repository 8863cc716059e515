"""Compare two profiles: phases and parts of a step, operators, kernels, memory, facts.

    difference = compare_profiles(read_any(before), read_any(after))
    difference.differs         # beyond the noise of the steps
    print(format_difference(difference))                              # compare_text.py
    write_difference_page(difference, Path("difference.html"))        # compare_page.py

A difference of medians counts if it exceeds the spread of the steps, one of means if it exceeds three standard errors;
either must also exceed 5 % of the iteration, by which two runs of the same program may differ (an assumption;
measuring it would take more runs). Operators are recorded in few steps, so their differences are sorted but not judged.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from statistics import fmean, median, quantiles, variance
from typing import Any

from .figures import WORTHWHILE_SHARE
from .measures import PHASE_TIMES, SHORT_PHASE_NAMES
from .record import Facts, Operator, Profile, Step
from .step_split import STEP_PARTS, read_step_parts

MIN_STEPS = 3  # of each profile; with fewer, nothing is judged
NOISE_FLOOR = WORTHWHILE_SHARE  # share of the iteration by which two runs of the same program may differ
STANDARD_ERRORS = 3.0  # a difference of two means counts from this multiple of its standard error on
COMPARED_FACTS = ("kind", "device", "description", "ranks", "batch", "precision", "mode", "workers", "cores")


@dataclass(frozen=True)
class FigureDifference:
    """One time of a step in both profiles: medians, means, and their noise. None: not measured.

    Times of kernels have neither means nor noise; they are those of a recorded step.
    """

    name: str
    before_us: float | None
    after_us: float | None
    before_mean_us: float | None = None
    after_mean_us: float | None = None
    noise_us: float | None = None  # smaller differences of the medians do not count; None: too few steps
    mean_noise_us: float | None = None  # the same for the means

    @property
    def change_us(self) -> float | None:
        """Median after minus median before."""
        return None if self.before_us is None or self.after_us is None else self.after_us - self.before_us

    @property
    def mean_change_us(self) -> float | None:
        if self.before_mean_us is None or self.after_mean_us is None:
            return None
        return self.after_mean_us - self.before_mean_us

    @property
    def ratio(self) -> float | None:
        """Median after / before: more than 1 is slower."""
        return self.after_us / self.before_us if self.before_us and self.after_us is not None else None

    @property
    def is_slower(self) -> bool | None:
        """True if the time became longer, by the medians or, if these differ too little, by the means.

        None if neither the medians nor the means differ by more than their noise.
        """
        pairs = ((self.change_us, self.noise_us), (self.mean_change_us, self.mean_noise_us))
        changes = [
            change for change, noise in pairs if change is not None and noise is not None and abs(change) > noise
        ]
        return changes[0] > 0 if changes else None

    @property
    def exceeds_noise(self) -> bool:
        """True if the medians differ by more than `noise_us`, or the means by more than `mean_noise_us`."""
        return self.is_slower is not None


@dataclass(frozen=True)
class OperatorDifference:
    """One operator in both profiles, per step of one rank; None if a profile does not have it."""

    name: str
    shapes: str
    module: str
    before_us: float | None
    after_us: float | None
    before_calls: float | None
    after_calls: float | None
    matched_by: str  # "signature", "name", or "" if only one profile has it

    @property
    def change_us(self) -> float:
        """Time after minus time before; positive for an operator that became slower."""
        return (self.after_us or 0.0) - (self.before_us or 0.0)

    @property
    def ratio(self) -> float | None:
        """Time after / time before, "Diff Ratio" in Ascend's tools: more than 1 is slower."""
        return self.after_us / self.before_us if self.before_us and self.after_us is not None else None


@dataclass(frozen=True)
class ProfileDifference:
    """Comparison of two profiles."""

    before: Profile
    after: Profile
    is_identical: bool  # all records except facts, advice and ceilings are the same
    iteration: FigureDifference
    phases: tuple[FigureDifference, ...]  # () unless both profiles have phases
    step_parts: tuple[FigureDifference, ...]  # complete step and STEP_PARTS of step_split.py; () unless both have them
    operators: tuple[OperatorDifference, ...]  # largest slowdown first
    kernels: tuple[FigureDifference, ...]  # by kind of work; () unless both profiles have kernels
    memory: tuple[int | None, int | None]  # peaks in bytes, before and after
    facts: tuple[tuple[str, str, str], ...]  # name, before, after

    @property
    def differs(self) -> bool:
        """True if the iteration or one of its phases differs beyond the noise of the steps; nothing else is judged."""
        return any(figure.exceeds_noise for figure in (self.iteration, *self.phases))

    @property
    def exit_code(self) -> int:
        """0: no difference beyond the noise; 1: a difference beyond it; 2: not to be judged.

        Identical records have no difference if they have an iteration.
        """
        if self.is_identical and self.iteration.before_us is not None:
            return 0
        return int(self.differs) if self.can_be_judged else 2

    @property
    def can_be_judged(self) -> bool:
        """True if both profiles have enough steps to tell a difference from noise."""
        return self.iteration.noise_us is not None


def compare_profiles(before: Profile, after: Profile) -> ProfileDifference:
    iteration = compare_figure("iteration", before, after, lambda step: step.iteration_us)
    has_phases = before.facts.phases_measured and after.facts.phases_measured and iteration.before_us is not None
    phases = [
        compare_figure(name, before, after, read)
        for name, read in zip(SHORT_PHASE_NAMES, PHASE_TIMES, strict=True)
        if has_phases
    ]
    return ProfileDifference(
        before,
        after,
        is_identical=is_identical(before, after),
        iteration=iteration,
        phases=tuple(phases),
        step_parts=compare_step_parts(before, after),
        operators=compare_operators(before.operators, after.operators),
        kernels=compare_kinds(before, after),
        memory=(find_peak(before), find_peak(after)),
        facts=compare_facts(before.facts, after.facts),
    )


def is_identical(before: Profile, after: Profile) -> bool:
    """Return True if all records except facts, advice and ceilings are the same in both."""
    names = [field.name for field in fields(Profile) if field.name not in ("facts", "advice", "ceilings")]
    pairs = ((getattr(before, name), getattr(after, name)) for name in names)
    return all(old == new or (isinstance(old, Sequence) and list(old) == list(new)) for old, new in pairs)


# Steps


def compare_figure(
    name: str, before: Profile, after: Profile, read: Callable[[Step], float | None]
) -> FigureDifference:
    """Return the difference of one time over the regular steps of both profiles."""
    times_before, times_after = (
        [value for step in profile.regular_steps if (value := read(step)) is not None] for profile in (before, after)
    )
    return compare_values(name, times_before, times_after, before.iteration_us or after.iteration_us or 0.0)


def compare_values(name: str, before: Sequence[float], after: Sequence[float], reference_us: float) -> FigureDifference:
    """Return medians and means of two lists of times, and their noise, at least NOISE_FLOOR of `reference_us`.

    With fewer than MIN_STEPS times in a list the noise is None.
    """
    medians = [median(values) if values else None for values in (before, after)]
    means = [fmean(values) if values else None for values in (before, after)]
    if min(len(before), len(after)) < MIN_STEPS:
        return FigureDifference(name, medians[0], medians[1], means[0], means[1])
    floor = NOISE_FLOOR * reference_us
    spread = math.hypot(half_spread(before), half_spread(after))
    error = math.sqrt(variance(before) / len(before) + variance(after) / len(after))
    noise, mean_noise = max(floor, spread), max(floor, STANDARD_ERRORS * error)
    return FigureDifference(name, medians[0], medians[1], means[0], means[1], noise, mean_noise)


def half_spread(values: Sequence[float]) -> float:
    """Return half the width of the middle half of the values."""
    low, _, high = quantiles(values, n=4, method="inclusive")
    return (high - low) / 2


def compare_step_parts(before: Profile, after: Profile) -> tuple[FigureDifference, ...]:
    """Compare end-to-end time, computing, exposed communication and free time; () unless both profiles have them."""
    splits = [read_step_parts(profile) for profile in (before, after)]
    if not all(splits):
        return ()
    reference = median(splits[0]["E2E"])
    return tuple(compare_values(name, splits[0][name], splits[1][name], reference) for name in ("E2E", *STEP_PARTS))


# Operators and kernels


Key = tuple[str, ...]  # name, shapes and module of operators, or their name alone
Sum = tuple[float, float]  # microseconds and calls of operators that are compared as one


def compare_operators(before: Iterable[Operator], after: Iterable[Operator]) -> tuple[OperatorDifference, ...]:
    """Match operators by name, shapes and module, then by name alone; return the largest slowdown first."""
    left, right = sum_operators(before), sum_operators(after)
    shared = left.keys() & right.keys()
    differences = [make_difference(key, left[key], right[key], "signature") for key in shared]
    left_only = {key: sums for key, sums in left.items() if key not in shared}
    right_only = {key: sums for key, sums in right.items() if key not in shared}
    left_names = add_sums((key[:1], sums) for key, sums in left_only.items())  # key[:1] is the name
    right_names = add_sums((key[:1], sums) for key, sums in right_only.items())
    for name in left_names.keys() & right_names.keys():
        differences.append(make_difference((*name, "", ""), left_names[name], right_names[name], "name"))
    differences += [make_difference(key, left_only[key], None, "") for key in left_only if key[:1] not in right_names]
    differences += [make_difference(key, None, right_only[key], "") for key in right_only if key[:1] not in left_names]
    return tuple(sorted(differences, key=lambda row: (-row.change_us, row.name, row.shapes, row.module)))


def make_difference(key: Key, before: Sum | None, after: Sum | None, matched_by: str) -> OperatorDifference:
    (before_us, before_calls), (after_us, after_calls) = (sums or (None, None) for sums in (before, after))
    name, shapes, module = key
    return OperatorDifference(name, shapes, module, before_us, after_us, before_calls, after_calls, matched_by)


def sum_operators(operators: Iterable[Operator]) -> dict[Key, Sum]:
    """Return cost and calls of the operators by key, as means over the ranks."""
    rows = list(operators)
    ranks = len({row.rank for row in rows}) or 1
    return add_sums(
        ((row.name, row.shapes, row.module), (row.device_or_self_us / ranks, row.calls / ranks)) for row in rows
    )


def add_sums(pairs: Iterable[tuple[Key, Sum]]) -> dict[Key, Sum]:
    sums: dict[Key, Sum] = {}
    for key, (time_us, calls) in pairs:
        known_us, known_calls = sums.get(key, (0.0, 0.0))
        sums[key] = known_us + time_us, known_calls + calls
    return sums


def compare_kinds(before: Profile, after: Profile) -> tuple[FigureDifference, ...]:
    """Compare the times of kernels by kind of work, the largest first; () unless both profiles have kernels."""
    left, right = sum_kinds(before), sum_kinds(after)
    if not left or not right:
        return ()
    names = sorted(left.keys() | right.keys(), key=lambda name: -max(left.get(name, 0.0), right.get(name, 0.0)))
    return tuple(FigureDifference(name, left.get(name, 0.0), right.get(name, 0.0)) for name in names)


def sum_kinds(profile: Profile) -> dict[str, float]:
    ranks = len({kernel.rank for kernel in profile.kernels}) or 1
    sums: dict[str, float] = defaultdict(float)
    for kernel in profile.kernels:
        sums[kernel.kind] += kernel.time_us / ranks
    return dict(sums)


# Memory and facts


def find_peak(profile: Profile) -> int | None:
    """Return the highest memory of any rank; None if it was not measured."""
    return max((point.allocated for point in profile.memory), default=None)


def compare_facts(before: Facts, after: Facts) -> tuple[tuple[str, str, str], ...]:
    rows = [(name, format_fact(getattr(before, name)), format_fact(getattr(after, name))) for name in COMPARED_FACTS]
    names = dict.fromkeys([*before.versions, *after.versions])
    rows += [(name, before.versions.get(name, "–"), after.versions.get(name, "–")) for name in names]
    return tuple((name, old, new) for name, old, new in rows if old != new)


def format_fact(value: Any) -> str:
    return "–" if value is None or value == "" else str(value)
