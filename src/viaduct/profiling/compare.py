"""Compare two profiles: which part of a step takes longer, and which operators.

    difference = compare_profiles(read_any(before), read_any(after))
    print(render_text(difference))
    write_comparison_page(difference, Path("difference.html"))
    difference.differs         beyond the noise of the steps

A difference counts where it exceeds both the spread of the steps within each run and a share of the iteration below
which two runs of the same program differ anyway. How much two runs differ is not measured: that takes more runs.
Operators have means of a few recorded steps alone: they are sorted, not judged.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import fmean, median, quantiles, variance
from typing import Any

from .figures import WORTH
from .record import Facts, Operator, Profile, Step
from .step_split import PARTS, read_split

FEWEST_STEPS = 3  # of each profile, to judge at all
FLOOR = WORTH  # share of the iteration by which two runs of the same program may differ anyway
CERTAIN = 3.0  # standard errors by which two means must differ
PHASES: tuple[tuple[str, Callable[[Step], float | None]], ...] = (
    ("data tail", lambda step: step.data_tail_us),
    ("forward + backward", lambda step: step.forward_backward_us),
    ("update tail", lambda step: step.update_tail_us),
)
COMPARED_FACTS = ("kind", "device", "description", "ranks", "batch", "precision", "mode", "workers", "cores")


@dataclass(frozen=True)
class FigureDifference:
    """One time of a step in both profiles: medians, means, and what the steps spread by. None: not measured."""

    name: str
    before_us: float | None
    after_us: float | None
    before_mean_us: float | None = None
    after_mean_us: float | None = None
    noise_us: float | None = None  # a difference of the medians below this says nothing; None: too few steps to know
    mean_noise_us: float | None = None

    @property
    def change_us(self) -> float | None:
        """Median after minus median before."""
        return None if self.before_us is None or self.after_us is None else self.after_us - self.before_us

    @property
    def mean_change_us(self) -> float | None:
        """Mean after minus mean before."""
        if self.before_mean_us is None or self.after_mean_us is None:
            return None
        return self.after_mean_us - self.before_mean_us

    @property
    def ratio(self) -> float | None:
        """Median after / before: more than 1 is slower."""
        return self.after_us / self.before_us if self.before_us and self.after_us is not None else None

    @property
    def exceeds_noise(self) -> bool:
        """True if the medians differ by more than `noise_us`, or the means by more than `mean_noise_us`."""
        pairs = ((self.change_us, self.noise_us), (self.mean_change_us, self.mean_noise_us))
        return any(change is not None and noise is not None and abs(change) > noise for change, noise in pairs)


@dataclass(frozen=True)
class OperatorDifference:
    """One operator in both profiles, per step of one rank; None where a profile does not have it."""

    name: str
    shapes: str
    module: str
    before_us: float | None
    after_us: float | None
    before_calls: float | None
    after_calls: float | None
    matched_by: str  # "signature", "name", or "" where only one profile has it

    @property
    def lost_us(self) -> float:
        """Time after minus time before: what is lost."""
        return (self.after_us or 0.0) - (self.before_us or 0.0)

    @property
    def ratio(self) -> float | None:
        """Return Diff Ratio, after / before: more than 1 is slower."""
        return self.after_us / self.before_us if self.before_us and self.after_us is not None else None


@dataclass(frozen=True)
class ProfileDifference:
    """Comparison of two profiles."""

    before: Profile
    after: Profile
    is_identical: bool  # in all that was measured
    iteration: FigureDifference
    phases: tuple[FigureDifference, ...]  # empty where one of them has none
    split: tuple[FigureDifference, ...]  # E2E, computing, uncovered communication, free; where both have it
    operators: tuple[OperatorDifference, ...]  # most time lost first
    kernels: tuple[FigureDifference, ...]  # by kind
    memory: tuple[int | None, int | None]  # peaks in bytes
    facts: tuple[tuple[str, str, str], ...]  # name, before, after

    @property
    def differs(self) -> bool:
        """True if the iteration or one of its phases differs beyond the noise of the steps."""
        return any(figure.exceeds_noise for figure in (self.iteration, *self.phases))

    @property
    def exit_code(self) -> int:
        """0 for no difference beyond the noise, 1 for one, 2 where that cannot be judged."""
        if self.is_identical and self.iteration.before_us is not None:
            return 0
        return int(self.differs) if self.can_be_judged else 2

    @property
    def can_be_judged(self) -> bool:
        """True if both profiles have enough steps to tell a difference from noise."""
        return self.iteration.noise_us is not None


def compare_profiles(before: Profile, after: Profile) -> ProfileDifference:
    """Return what differs between two profiles."""
    iteration = compare_figure("iteration", before, after, lambda step: step.iteration_us)
    has_phases = before.facts.phases_measured and after.facts.phases_measured and iteration.before_us is not None
    return ProfileDifference(
        before,
        after,
        is_identical(before, after),
        iteration,
        tuple(compare_figure(name, before, after, read) for name, read in PHASES) if has_phases else (),
        compare_splits(before, after),
        compare_operators(before.operators, after.operators),
        compare_kinds(before, after),
        (find_peak(before), find_peak(after)),
        compare_facts(before.facts, after.facts),
    )


def is_identical(before: Profile, after: Profile) -> bool:
    """Return True if every measured record is the same in both."""
    parts = [field.name for field in fields(Profile) if field.name not in ("facts", "advice", "ceilings")]
    return all(as_lists(getattr(before, name)) == as_lists(getattr(after, name)) for name in parts)


def as_lists(value: Any) -> Any:
    return list(value) if isinstance(value, tuple | list) else value


# Steps


def compare_figure(
    name: str, before: Profile, after: Profile, read: Callable[[Step], float | None]
) -> FigureDifference:
    """Return one time of the regular steps of both profiles."""
    sides = [
        [value for step in profile.regular_steps if (value := read(step)) is not None] for profile in (before, after)
    ]
    reference = before.iteration_us or after.iteration_us or 0.0
    return compare_values(name, sides[0], sides[1], reference)


def compare_values(name: str, before: Sequence[float], after: Sequence[float], reference_us: float) -> FigureDifference:
    """Return medians and means of two lists of times, with what each must differ by to count."""
    figures = [median(values) if values else None for values in (before, after)]
    means = [fmean(values) if values else None for values in (before, after)]
    if min(len(before), len(after)) < FEWEST_STEPS:
        return FigureDifference(name, figures[0], figures[1], means[0], means[1])
    floor = FLOOR * reference_us
    spread = math.hypot(half_spread(before), half_spread(after))
    error = math.sqrt(variance(before) / len(before) + variance(after) / len(after))
    return FigureDifference(
        name, figures[0], figures[1], means[0], means[1], max(floor, spread), max(floor, CERTAIN * error)
    )


def half_spread(values: Sequence[float]) -> float:
    """Return half the width of the middle half of the values."""
    low, _, high = quantiles(values, n=4, method="inclusive")
    return (high - low) / 2


def compare_splits(before: Profile, after: Profile) -> tuple[FigureDifference, ...]:
    """Return end-to-end time, computing, uncovered communication and free time, where both profiles have them."""
    splits = [read_split(profile) for profile in (before, after)]
    if not all(splits):
        return ()
    reference = median(splits[0]["E2E"])
    return tuple(compare_values(name, splits[0][name], splits[1][name], reference) for name in ("E2E", *PARTS))


# Operators and kernels


@dataclass
class OperatorSum:
    """Time and calls of operators that are compared as one."""

    time_us: float = 0.0
    calls: float = 0.0

    def add(self, time_us: float, calls: float) -> None:
        """Add another operator."""
        self.time_us += time_us
        self.calls += calls


Key = tuple[str, str, str]  # name, shapes, module


def compare_operators(before: Iterable[Operator], after: Iterable[Operator]) -> tuple[OperatorDifference, ...]:
    """Match operators by name, shapes and module, then the unmatched ones by name.

    Return those that lost most first.
    """
    left, right = sum_operators(before), sum_operators(after)
    shared = left.keys() & right.keys()
    found = [match(key, left[key], right[key], "signature") for key in shared]
    left_names, right_names = (sum_names(side, shared) for side in (left, right))
    for name in left_names.keys() | right_names.keys():
        old, new = left_names.get(name), right_names.get(name)
        if old is not None and new is not None:
            found.append(match((name, "", ""), old, new, "name"))
        elif old is not None:
            found += [match(key, left[key], None, "") for key in left if key[0] == name and key not in shared]
        else:
            found += [match(key, None, right[key], "") for key in right if key[0] == name and key not in shared]
    return tuple(sorted(found, key=lambda each: (-each.lost_us, each.name, each.shapes, each.module)))


def match(key: Key, before: OperatorSum | None, after: OperatorSum | None, matched_by: str) -> OperatorDifference:
    return OperatorDifference(
        *key,
        None if before is None else before.time_us,
        None if after is None else after.time_us,
        None if before is None else before.calls,
        None if after is None else after.calls,
        matched_by,
    )


def sum_operators(operators: Iterable[Operator]) -> dict[Key, OperatorSum]:
    """Return the mean over ranks of each operator's own time: of its kernels, or of the host where it has none."""
    listed = list(operators)
    ranks = len({operator.rank for operator in listed}) or 1
    sums: dict[Key, OperatorSum] = defaultdict(OperatorSum)
    for operator in listed:
        time = operator.self_us if operator.device_us is None else operator.device_us
        sums[operator.name, operator.shapes, operator.module].add(time / ranks, operator.calls / ranks)
    return dict(sums)


def sum_names(side: dict[Key, OperatorSum], matched: Iterable[Key]) -> dict[str, OperatorSum]:
    """Return the operators that were not matched, summed by name."""
    done = set(matched)
    sums: dict[str, OperatorSum] = defaultdict(OperatorSum)
    for key, total in side.items():
        if key not in done:
            sums[key[0]].add(total.time_us, total.calls)
    return dict(sums)


def compare_kinds(before: Profile, after: Profile) -> tuple[FigureDifference, ...]:
    """Return the time of kernels by kind of work, the largest first."""
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
    """Return the highest memory of any rank; None where it was not measured."""
    return max((point.allocated for point in profile.memory), default=None)


def compare_facts(before: Facts, after: Facts) -> tuple[tuple[str, str, str], ...]:
    """Return facts and versions that differ."""
    found = [(name, write_fact(getattr(before, name)), write_fact(getattr(after, name))) for name in COMPARED_FACTS]
    names = dict.fromkeys([*before.versions, *after.versions])
    found += [(name, before.versions.get(name, "–"), after.versions.get(name, "–")) for name in names]
    return tuple(fact for fact in found if fact[1] != fact[2])


def write_fact(value: Any) -> str:
    return "–" if value is None or value == "" else str(value)


# Output


def render_text(difference: ProfileDifference) -> str:
    """Return the comparison as plain text for the terminal."""
    from .compare_text import write_text

    return write_text(difference)


def write_comparison_page(difference: ProfileDifference, path: Path) -> None:
    """Write the comparison as a page of its own."""
    from .compare_page import write_difference_page

    write_difference_page(difference, path)
