"""Comparison of results besides losses, gradients and weights: printed numbers, network inputs, evaluations.

A printed number is compared if it is not a time or speed, and if the second run of each side repeats it. Lines are
paired if they differ only in numbers and device names. A number that differs, or that only one side prints, makes the
verdict "not proved" instead of "differs": a script may print, for example, how much memory its device has.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from difflib import SequenceMatcher

from viaduct.cards import BACKENDS
from viaduct.carrying.observations import Rank
from viaduct.carrying.running import Run
from viaduct.rehearsal.plan import Plan
from viaduct.rehearsal.printing import read_printed_lines

# No number is a text such as 7e405988123456789012, part of a hash: Decimal refuses such an exponent.
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d{1,6})?(?![\w])")
DEVICE = re.compile("|".join(("cuda|gpu|npu|mlu", *BACKENDS.values())), re.IGNORECASE)
MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
# A time of day whose separators are equal: {0} becomes a backreference to the first separator.
TIME_OF_DAY = r"[0-2]\d([:._-])[0-5]\d(?:{0}[0-5]\d(?:[.,]\d+)?)?"
TIMES = (
    r"20\d\d([-/_])[01]\d\1[0-3]\d(?:[T _-]" + TIME_OF_DAY.format(r"\2") + ")?",  # 2024-05-31 12:30:00
    r"20\d\d[01]\d[0-3]\d(?:[T_-]?[0-2]\d[0-5]\d(?:[0-5]\d)?)?",  # 20240531-123000
    rf"{MONTH}[a-z]*[ _-]?\d{{1,2}}(?:[ _-]" + TIME_OF_DAY.format(r"\3") + ")?",  # May31_12-30-00
    r"[0-2]\d:[0-5]\d(?::[0-5]\d(?:[.,]\d+)?)?",
    r"1[6-9]\d{8}(?:\.\d+)?",  # seconds since 1970
)
# Text before and after a number that is a time or a speed.
TIME_PREFIX = re.compile(
    r"\b(?:time(?:/| per )(?:batch|step|epoch|iter(?:ation)?|image|sample|example)"
    r"|time|took|elapsed|duration|runtime|throughput|speed)\W{0,4}$",
    re.IGNORECASE,
)
TIME_SUFFIX = re.compile(
    r" ?(?:(?:s|secs?|seconds?|ms)(?:/(?:it|iter|batch|step|epoch|image|sample|example))?"
    r"|minutes?|(?:it|[a-z]{2,10})/s(?:ec)?|fps)(?![\w/])",
    re.IGNORECASE,
)
# Dates and times of day: two runs of a side may print the same day, and the other side the next one.
TIME = re.compile(rf"(?<![\d.])(?:{'|'.join(TIMES)})(?!\d)")
MAX_LINES = 5000  # printed lines of a rank that are compared
INPUT_ROUNDING = 1e-5  # allowed difference of a network's inputs, relative to the sum of their magnitudes


@dataclass(frozen=True)
class ComparedRuns:
    """The runs whose results are compared: both sides, their second runs, and the perturbed run of the original."""

    original: Run  # perhaps with the intended changes
    migrated: Run
    original_again: Run | None = None
    migrated_again: Run | None = None
    perturbed: Run | None = None
    allowed: float = 0.0  # relative difference of plain numbers that is allowed as rounding


@dataclass(frozen=True)
class FurtherResults:
    """Differences between the sides, and how much was compared."""

    differing: list[str]  # descriptions for the user
    compared: int = 0  # number of printed numbers that were compared
    unpaired: int = 0  # number of printed lines without a partner on the other side
    evaluations: int = 0  # number of passes without gradients that were compared (TensorFlow: runs)


def compare_further_results(runs: ComparedRuns) -> FurtherResults:
    differing: list[str] = []
    compared = unpaired = 0
    ours, theirs = read_printed(runs.original.plan), read_printed(runs.migrated.plan)
    # Without a second run of the original, the two runs of the migrated script show which numbers repeat themselves.
    # Without a second run of the migrated script, no number is known to repeat itself.
    ours_again = read_printed(runs.original_again.plan) if runs.original_again is not None else ours
    theirs_again = read_printed(runs.migrated_again.plan) if runs.migrated_again is not None else {}
    for rank in sorted(ours.keys() | theirs.keys()):
        before, after = ours.get(rank, []), theirs.get(rank, [])
        left = find_stable_numbers(before, ours_again.get(rank, []))
        right = find_stable_numbers(after, theirs_again.get(rank, []))
        pairs = pair_lines(before, after)
        unpaired += len(before) + len(after) - 2 * len(pairs)
        for a, b in pairs:
            numbers = [(x, y) for x, y in zip(left[a], right[b], strict=True) if x is not None and y is not None]
            compared += len(numbers)
            if any(not is_alike(x, y, runs.allowed) for x, y in numbers):
                line, other = describe_line(before[a]), describe_line(after[b])
                differing.append(f"{line} in the original, {other} after the migration")
        differing += find_one_sided_lines("original", before, left, {a for a, _ in pairs}, after)
        differing += find_one_sided_lines("migrated script", after, right, {b for _, b in pairs}, before)
    evaluated, count = compare_evaluations(runs.original, runs.migrated, runs.allowed)
    inputs = compare_inputs(runs.original, runs.migrated)
    return FurtherResults([*inputs, *evaluated, *differing], compared, unpaired, count)


def read_printed(plan: Plan) -> dict[int, list[str]]:
    """Return the first MAX_LINES printed lines of each rank, without the run's own paths and without times."""
    return {
        rank: mask_paths_and_times(lines[:MAX_LINES], plan)
        for rank, lines in read_printed_lines(plan.record_folder).items()
    }


def mask_paths_and_times(lines: list[str], plan: Plan) -> list[str]:
    """Return the lines with dates, times of day and the run's own paths replaced: they differ between runs."""
    paths = re.compile(
        "|".join(re.escape(path) for path in (plan.visible_start_folder, plan.record_folder, plan.source_tree) if path)
    )
    return [TIME.sub("time", paths.sub("…", line)) for line in lines]


def mask_numbers(line: str) -> str:
    """Return a printed line with its numbers and device names replaced, for pairing."""
    return NUMBER.sub("#", DEVICE.sub("device", line))


def pair_lines(left: list[str], right: list[str]) -> list[tuple[int, int]]:
    """Return the pairs of lines that differ only in numbers and device names."""
    matcher = SequenceMatcher(
        None, [mask_numbers(line) for line in left], [mask_numbers(line) for line in right], autojunk=False
    )
    return [(a + i, b + i) for a, b, size in matcher.get_matching_blocks() for i in range(size)]


def find_stable_numbers(lines: list[str], again: list[str]) -> list[list[str | None]]:
    """Return the numbers of each line; None stands for times, speeds, and numbers that the second run does not repeat.

    `again`: the lines of the second run.
    """
    stable: list[list[str | None]] = [[None] * len(NUMBER.findall(line)) for line in lines]
    for a, b in pair_lines(lines, again):
        numbers = zip(NUMBER.findall(lines[a]), NUMBER.findall(again[b]), strict=True)
        ignored = find_times_and_speeds(lines[a])
        stable[a] = [x if x == y and index not in ignored else None for index, (x, y) in enumerate(numbers)]
    return stable


def find_times_and_speeds(line: str) -> set[int]:
    """Return the indices of the numbers of a line that are times or speeds, by the text around them.

    Two runs may print the same time by chance, so comparing the runs does not reveal all of them.
    """
    return {
        index
        for index, match in enumerate(NUMBER.finditer(line))
        if TIME_PREFIX.search(line[: match.start()]) or TIME_SUFFIX.match(line[match.end() :])
    }


def find_one_sided_lines(
    side: str, lines: list[str], numbers: list[list[str | None]], paired: set[int], others: list[str]
) -> Iterator[str]:
    """Yield sentences about the unpaired lines with a stable number. `others`: the lines of the other side."""
    for index, line in enumerate(lines):
        if index not in paired and any(number is not None for number in numbers[index]):
            yield f"{describe_line(line)} is printed by the {side} {describe_absence(line, others)}"


def describe_absence(line: str, others: list[str]) -> str:
    """Return the end of the sentence "LINE is printed by the original …", which says how the other side differs."""
    masked = mask_numbers(line)
    return "more often or at another place" if any(mask_numbers(other) == masked for other in others) else "only"


def is_alike(left: str, right: str, allowed: float) -> bool:
    """Return True if two printed numbers are equal, or differ by no more than `allowed` (relative).

    If rounding is allowed, the last printed decimal may also differ by one.
    """
    if not allowed:
        return Decimal(left) == Decimal(right)  # as floats, 9007199254740993 would equal 9007199254740992
    a, b = float(left), float(right)
    last_place = min(find_last_place(left), find_last_place(right))
    return abs(a - b) <= allowed * max(abs(a), abs(b)) + 1.01 * last_place  # 1.01 allows for rounding of a - b


def find_last_place(number: str) -> float:
    """Return one unit in the last printed decimal: 0.01 for 1.25, 1e-6 for 1.5e-05; 0 for a whole number."""
    mantissa, _, exponent = number.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return float(f"1e{int(exponent or 0) - decimals}") if decimals or exponent else 0.0


def describe_line(line: str) -> str:
    text = line.strip()
    return repr(text if len(text) <= 100 else f"{text[:100]} …")


def compare_evaluations(original: Run, migrated: Run, allowed: float) -> tuple[list[str], int]:
    """Compare the outputs of passes without gradients, as sums, pass by pass.

    Return the first difference of each rank, and the number of compared passes. A pass that returns no tensor in lists,
    tuples and dicts has no sums, and does not count.
    """
    differing, count = [], 0
    for left, right in zip(original.observations.ranks, migrated.observations.ranks, strict=False):
        count += sum(bool(ours or theirs) for ours, theirs in zip(left.evaluations, right.evaluations, strict=False))
        differing += list(find_other_evaluations(left, right, allowed))[:1]
    return differing, count


def find_other_evaluations(left: Rank, right: Rank, allowed: float) -> Iterator[str]:
    """Yield a sentence if the counts of evaluations differ, and one for each evaluation with other sums."""
    if len(left.evaluations) != len(right.evaluations):
        counts = f"{len(left.evaluations)} passes without gradients in the original, {len(right.evaluations)} after"
        yield f"evaluation of rank {left.number}: {counts} the migration"
    for number, (ours, theirs) in enumerate(zip(left.evaluations, right.evaluations, strict=False)):
        if not are_sums_alike(ours, theirs, allowed):
            yield f"the output of pass {number} without gradients (an evaluation) of rank {left.number}"


def compare_inputs(original: Run, migrated: Run) -> list[str]:
    """Return a sentence about the first step of each rank whose network inputs differ in their weighted sums.

    Losses would not show that the samples of a batch are in another order, which changes them by rounding only.
    """
    differing = []
    for left, right in zip(original.observations.ranks, migrated.observations.ranks, strict=False):
        for step, (ours, theirs) in enumerate(zip(left.inputs, right.inputs, strict=False)):
            if not are_sums_alike(ours, theirs, INPUT_ROUNDING):
                differing.append(f"the data of step {step} of rank {left.number}, or their order")
                break
    return differing


def are_sums_alike(left: list[float], right: list[float], allowed: float) -> bool:
    """Return True if two lists of sums agree. They hold two sums for each tensor: a weighted one, and of magnitudes.

    The differences of both are relative to the sum of the magnitudes.
    """
    if len(left) != len(right):
        return False
    # Sums of magnitudes have odd indices; `index | 1` is the odd index of the same tensor.
    scales = [max(abs(left[index | 1]), abs(right[index | 1])) for index in range(len(left))]
    return all(
        a == b or (math.isfinite(scale) and abs(a - b) <= allowed * scale) or (a != a and b != b)
        for a, b, scale in zip(left, right, scales, strict=True)
    )
