"""Printed values, inputs of the networks and results of evaluations of the two sides, compared where each side
repeats itself.

A number counts if two runs of the same side print it alike: times and speeds do not. Lines belong together if they are
alike but for their numbers and the name of the device. A number that differs, or that one side alone prints, is no
verdict by itself (a script may print the memory of its device), but it keeps the comparison from being a proof.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

from viaduct.cards import BACKENDS
from viaduct.carrying.observed import Rank
from viaduct.carrying.running import Run
from viaduct.rehearsal.plan import Plan
from viaduct.rehearsal.printing import read_lines

NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?(?![\w])")
DEVICE = re.compile("|".join(("cuda|gpu|npu|mlu", *BACKENDS.values())), re.IGNORECASE)
MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
CLOCK = r"[0-2]\d([:._-])[0-5]\d(?:{0}[0-5]\d(?:[.,]\d+)?)?"
TIMES = (
    r"20\d\d([-/_])[01]\d\1[0-3]\d(?:[T _-]" + CLOCK.format(r"\2") + ")?",  # 2024-05-31 12:30:00
    r"20\d\d[01]\d[0-3]\d(?:[T_-]?[0-2]\d[0-5]\d(?:[0-5]\d)?)?",  # 20240531-123000
    rf"{MONTH}[a-z]*[ _-]?\d{{1,2}}(?:[ _-]" + CLOCK.format(r"\3") + ")?",  # May31_12-30-00
    r"[0-2]\d:[0-5]\d(?::[0-5]\d(?:[.,]\d+)?)?",
    r"1[6-9]\d{8}(?:\.\d+)?",  # seconds since 1970
)
SPENT = re.compile(
    r"\b(?:time(?:/| per )(?:batch|step|epoch|iter(?:ation)?|image|sample|example)"
    r"|time|took|elapsed|duration|runtime|throughput|speed)\W{0,4}$",
    re.IGNORECASE,
)
UNIT = re.compile(
    r" ?(?:(?:s|secs?|seconds?|ms)(?:/(?:it|iter|batch|step|epoch|image|sample|example))?"
    r"|minutes?|(?:it|[a-z]{2,10})/s(?:ec)?|fps)(?![\w/])",
    re.IGNORECASE,
)
TIME = re.compile(rf"(?<![\d.])(?:{'|'.join(TIMES)})(?!\d)")
"""What both runs of a side may have alike, and the other side not: they are made at other times."""
LINES = 5000  # of a rank that are compared
INPUT_ROUNDING = 1e-5  # of what a network is given, relative to its magnitude


@dataclass(frozen=True)
class Outcomes:
    """`differing`: what is not the same, in words; `compared`: numbers, `unpaired`: lines that only one side prints."""

    differing: list[str]
    compared: int = 0
    unpaired: int = 0
    evaluations: int = 0


def compare_outcomes(original: Run, again: Run | None, migrated: Run, repeated: Run | None, allowed: float) -> Outcomes:
    """Compare printed numbers and evaluations. `allowed`: relative difference that rounding explains."""
    differing: list[str] = []
    compared = unpaired = 0
    ours, theirs = read_printed(original.plan), read_printed(migrated.plan)
    # A side that was run once counts in all its numbers: those that change are found by the other side's two runs.
    ours_again = read_printed(again.plan) if again is not None else ours
    theirs_again = read_printed(repeated.plan) if repeated is not None else {}
    for rank in sorted(ours.keys() | theirs.keys()):
        before, after = ours.get(rank, []), theirs.get(rank, [])
        left = stable_numbers(before, ours_again.get(rank, []))
        right = stable_numbers(after, theirs_again.get(rank, []))
        pairs = pair_lines(before, after)
        unpaired += len(before) + len(after) - 2 * len(pairs)
        for a, b in pairs:
            numbers = [(x, y) for x, y in zip(left[a], right[b], strict=True) if x is not None and y is not None]
            compared += len(numbers)
            if any(not is_alike(x, y, allowed) for x, y in numbers):
                line, other = describe_line(before[a]), describe_line(after[b])
                differing.append(f"{line} in the original, {other} after the migration")
        differing += find_one_sided_lines("original", before, left, {a for a, _ in pairs})
        differing += find_one_sided_lines("migrated script", after, right, {b for _, b in pairs})
    evaluated, count = compare_evaluations(original, migrated, allowed)
    return Outcomes([*compare_inputs(original, migrated), *evaluated, *differing], compared, unpaired, count)


def read_printed(plan: Plan) -> dict[int, list[str]]:
    """Return the printed lines, without the paths that each run has of its own."""
    found = {}
    for rank, lines in read_lines(plan.record).items():
        found[rank] = remove_own_names(lines[:LINES], plan)
    return found


def remove_own_names(lines: list[str], plan: Plan) -> list[str]:
    """Return lines without the paths that each run has of its own, and without times."""
    paths = re.compile("|".join(re.escape(path) for path in (plan.work, plan.record, plan.tree) if path))
    return [TIME.sub("time", paths.sub("…", line)) for line in lines]


def skeleton(line: str) -> str:
    """Return a printed line with its numbers and device names replaced, for pairing."""
    return NUMBER.sub("#", DEVICE.sub("device", line))


def pair_lines(left: list[str], right: list[str]) -> list[tuple[int, int]]:
    """Return the pairs of lines that differ in numbers and device names only."""
    matcher = SequenceMatcher(
        None, [skeleton(line) for line in left], [skeleton(line) for line in right], autojunk=False
    )
    return [(a + i, b + i) for a, b, size in matcher.get_matching_blocks() for i in range(size)]


def stable_numbers(lines: list[str], again: list[str]) -> list[list[str | None]]:
    """The numbers of each line; None for one that the second run prints otherwise, or not at all."""
    found: list[list[str | None]] = [[None] * len(NUMBER.findall(line)) for line in lines]
    for a, b in pair_lines(lines, again):
        numbers = zip(NUMBER.findall(lines[a]), NUMBER.findall(again[b]), strict=True)
        spent = find_durations(lines[a])
        found[a] = [x if x == y and index not in spent else None for index, (x, y) in enumerate(numbers)]
    return found


def find_durations(line: str) -> set[int]:
    """Return which numbers of a line are times or speeds: with few digits two runs may print them alike by chance."""
    return {
        index
        for index, match in enumerate(NUMBER.finditer(line))
        if SPENT.search(line[: match.start()]) or UNIT.match(line[match.end() :])
    }


def find_one_sided_lines(
    side: str, lines: list[str], numbers: list[list[str | None]], paired: set[int]
) -> Iterator[str]:
    """Yield lines with repeatable numbers that the other side does not print."""
    for index, line in enumerate(lines):
        if index not in paired and any(number is not None for number in numbers[index]):
            yield f"{describe_line(line)} is printed by the {side} only"


def is_alike(left: str, right: str, allowed: float) -> bool:
    """Return True if two printed numbers are equal, or differ by rounding where the runs do."""
    if left == right:
        return True
    a, b = float(left), float(right)
    digits = max(len(text.partition(".")[2].partition("e")[0]) for text in (left.lower(), right.lower()))
    last = 10.0**-digits if allowed and digits else 0.0
    return abs(a - b) <= allowed * max(abs(a), abs(b)) + 1.01 * last


def describe_line(line: str) -> str:
    text = line.strip()
    return repr(text if len(text) <= 100 else f"{text[:100]} …")


def compare_evaluations(original: Run, migrated: Run, allowed: float) -> tuple[list[str], int]:
    """Compare the outputs of networks without gradients, as sums, call by call."""
    found, count = [], 0
    for left, right in zip(original.observed.ranks, migrated.observed.ranks, strict=False):
        count += min(len(left.evaluations), len(right.evaluations))
        found += list(differing_evaluations(left, right, allowed))[:1]
    return found, count


def differing_evaluations(left: Rank, right: Rank, allowed: float) -> Iterator[str]:
    """Yield the evaluations whose results differ by more than is allowed."""
    if len(left.evaluations) != len(right.evaluations):
        counts = f"{len(left.evaluations)} passes without gradients in the original, {len(right.evaluations)} after"
        yield f"evaluation of rank {left.number}: {counts} the migration"
    for number, (ours, theirs) in enumerate(zip(left.evaluations, right.evaluations, strict=False)):
        if not are_sums_alike(ours, theirs, allowed):
            yield f"the output of pass {number} without gradients (an evaluation) of rank {left.number}"


def compare_inputs(original: Run, migrated: Run) -> list[str]:
    """Return the first step of each rank whose network inputs differ.

    The loss of a batch in another order is the same up to rounding, and no comparison of losses shows it.
    """
    found = []
    for left, right in zip(original.observed.ranks, migrated.observed.ranks, strict=False):
        for step, (ours, theirs) in enumerate(zip(left.inputs, right.inputs, strict=False)):
            if not are_sums_alike(ours, theirs, INPUT_ROUNDING):
                found.append(f"the data of step {step} of rank {left.number}, or their order")
                break
    return found


def are_sums_alike(left: list[float], right: list[float], allowed: float) -> bool:
    """Compare pairs of a weighted sum and the sum of magnitudes, to which a difference of either is relative."""
    if len(left) != len(right):
        return False
    scales = [max(abs(left[index | 1]), abs(right[index | 1])) for index in range(len(left))]
    return all(
        a == b or (math.isfinite(a) and abs(a - b) <= allowed * scale) or (a != a and b != b)
        for a, b, scale in zip(left, right, scales, strict=True)
    )
