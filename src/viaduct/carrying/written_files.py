"""Comparison of the files that the two sides wrote, by content.

Tensors of a checkpoint are judged as weights: the perturbed run's file shows how much they may differ. Tensors, plain
values, scalars and lines that the second run of a side writes differently are not compared. A file that only one side
writes is a difference, unless the second run of that side does not write it. A file that cannot be compared is listed
with the reason.
"""

from __future__ import annotations

import filecmp
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from viaduct.carrying.agreement import ValuePair, measure_distance, pair_arrays, set_tolerances
from viaduct.carrying.contents import Content, Unreadable, read_content
from viaduct.carrying.further_results import (
    DEVICE,
    NUMBER,
    TIME,
    ComparedRuns,
    describe_absence,
    describe_line,
    find_stable_numbers,
    is_alike,
    mask_paths_and_times,
    pair_lines,
)
from viaduct.carrying.running import Run
from viaduct.migration.summary import plural
from viaduct.rehearsal.files import find_written_file

State = Literal["equal", "rounding", "differs", "not compared"]
REPEAT_TOLERANCE = 1e-5  # two runs of a side repeat a number if it differs by at most this (relative)
MAX_FILES = 500  # pairs of files that are compared
MAX_SHOWN = 3  # values or lines of a file that are named in the result
IGNORED = re.compile(r"(?:^|/)__pycache__/|\.pyc$|\.lock$")
CHECKPOINT_DATA = re.compile(r"\.data-\d{5}-of-\d{5}$")  # of a TensorFlow checkpoint, read with its .index


@dataclass(frozen=True)
class WrittenFile:
    """Result of one file. `detail`: what was compared or differs, or why it was not compared."""

    name: str  # in the original; in the migrated script if the original does not write it
    state: State
    detail: str
    count: int = 0  # values, lines or tensors that were compared; 1 for a file that is equal in every byte


def list_written(run: Run | None) -> dict[str, Path]:
    """Return the files that a run wrote or changed, by path: relative to the working folder, or absolute.

    Links, locks, Python's caches and files that do not exist any more are left out.
    """
    if run is None:
        return {}
    names = [name for name in run.summary.written_files if not IGNORED.search(name)]
    files = {name: find_written_file(run.plan.record_folder, name) for name in names}
    return {name: path for name, path in files.items() if path.is_file() and not path.is_symlink()}


def compare_written(runs: ComparedRuns) -> list[WrittenFile]:
    ours, theirs = list_written(runs.original), list_written(runs.migrated)
    pairs = pair_names(list(ours), list(theirs))
    results = list(compare_one_sided(runs, ours, theirs, pairs))
    for number, (left, right) in enumerate(pairs.items()):
        if CHECKPOINT_DATA.search(left) and CHECKPOINT_DATA.sub(".index", left) in pairs:
            continue
        if number >= MAX_FILES:
            results.append(WrittenFile(left, "not compared", f"it is beyond the first {MAX_FILES} files"))
        elif filecmp.cmp(ours[left], theirs[right], shallow=False) and not left.endswith(".index"):
            results.append(WrittenFile(left, "equal", "equal in every byte", 1))
        else:
            results.append(compare_file(runs, left, ours[left], right, theirs[right]))
    return sorted(results, key=lambda file: file.name)


def normalise_name(name: str) -> str:
    """Return a file's name with device names, times and numbers of six digits or more replaced, for pairing."""
    if "tfevents" in name:
        name = re.sub(r"tfevents\.[^/]*", "tfevents", name)
    return re.sub(r"\d{6,}", "#", TIME.sub("time", DEVICE.sub("device", name)))


def pair_names(left: list[str], right: list[str]) -> dict[str, str]:
    """Return right names by left names: equal names, then the others by their normalised names, in order."""
    pairs = {name: name for name in left if name in set(right)}
    waiting: dict[str, list[str]] = defaultdict(list)
    for name in sorted(set(right) - pairs.keys()):
        waiting[normalise_name(name)].append(name)
    for name in sorted(set(left) - pairs.keys()):
        if others := waiting.get(normalise_name(name)):
            pairs[name] = others.pop(0)
    return pairs


def compare_one_sided(
    runs: ComparedRuns, ours: dict[str, Path], theirs: dict[str, Path], pairs: dict[str, str]
) -> Iterator[WrittenFile]:
    """Yield the files that only one side wrote, as differences; not compared if its second run does not write them."""
    sides = (
        (ours, set(pairs), runs.original_again, "the original"),
        (theirs, set(pairs.values()), runs.migrated_again, "the migrated script"),
    )
    for files, paired, again, side in sides:
        repeated = {normalise_name(name) for name in list_written(again)} if again is not None else None
        for name in sorted(files.keys() - paired):
            if repeated is not None and normalise_name(name) not in repeated:
                yield WrittenFile(name, "not compared", f"one of two runs of {side} writes it, the other does not")
            else:
                yield WrittenFile(name, "differs", f"only {side} writes it")


def compare_file(runs: ComparedRuns, left: str, left_path: Path, right: str, right_path: Path) -> WrittenFile:
    try:
        ours, theirs = read_content(left_path), read_content(right_path)
        ours_again, theirs_again = read_again(runs.original_again, left), read_again(runs.migrated_again, right)
        perturbed = read_again(runs.perturbed, left)
    except Unreadable as reason:
        return WrittenFile(left, "not compared", str(reason))
    if (ours.lines is None) != (theirs.lines is None):
        return WrittenFile(left, "differs", "it has another format after the migration")
    if ours.unread_reason or theirs.unread_reason:
        return compare_storages(left, ours, theirs)
    if ours.lines is not None:
        return compare_lines(runs, left, (ours, theirs), (ours_again, theirs_again))
    return compare_values(runs, left, (ours, theirs), (ours_again, theirs_again), perturbed)


def read_again(run: Run | None, name: str) -> Content | None:
    """Read the file of another run of the side with this name, or with the same normalised name; None: no such file."""
    files = list_written(run)
    names = [name] if name in files else [file for file in files if normalise_name(file) == normalise_name(name)]
    return read_content(files[names[0]]) if names else None


# ---- tensors and plain values


Contents = tuple[Content, Content]  # of the original and the migrated script
SecondContents = tuple[Content | None, Content | None]  # of their second runs


def compare_values(
    runs: ComparedRuns, name: str, sides: Contents, again: SecondContents, perturbed: Content | None
) -> WrittenFile:
    """Compare the tensors and plain values of a file that both runs of a side write equally."""
    ours, theirs = sides
    unstable = set().union(*(find_unstable(*pair) for pair in zip(sides, again, strict=True)))
    pairs = [pair for pair in pair_arrays("weight", ours.arrays, theirs.arrays, 0) if pair.name not in unstable]
    perturbed_pairs = list(pair_arrays("weight", ours.arrays, perturbed.arrays, 0)) if perturbed is not None else []
    judged = judge_pixels(runs, ours, theirs, pairs) if ours.is_image else set_tolerances(pairs, perturbed_pairs)
    keys = [*dict.fromkeys([*ours.values, *theirs.values])]
    skipped = [key for key in keys if ours.may_skip_values and (key not in ours.values or key not in theirs.values)]
    values = {key: (ours.values.get(key), theirs.values.get(key)) for key in keys if key not in {*skipped, *unstable}}
    bad = [f"{pair.name} {pair.why or f'is off by {pair.error:.2g}'}" for pair in judged if pair.bad]
    bad += [describe_other_value(key, *both) for key, both in values.items() if not is_same_value(*both, runs.allowed)]
    count = len(pairs) + len(values)
    if bad:
        return WrittenFile(name, "differs", describe_some(bad), count)
    uncompared = {
        "not read": [*dict.fromkeys([*ours.skipped, *theirs.skipped])],
        "not compared, since only one side writes it": skipped,
        "not compared, since a second run writes another value": sorted(unstable),
    }
    ending = "".join(f"; {reason}: {describe_some(names)}" for reason, names in uncompared.items() if names)
    if not count:
        nothing = "it holds no value that repeats itself and that both sides write"
        return WrittenFile(name, "not compared", nothing + ending)
    counts = ", ".join(plural(n, noun) for n, noun in ((len(pairs), "tensor"), (len(values), "value")) if n)
    hidden = sum(not pair.is_informative and not pair.same for pair in judged)
    if hidden == count:
        return WrittenFile(name, "not compared", f"{counts}, mostly rounding{ending}")
    equal = all(pair.same for pair in pairs) and all(is_same_value(*both, 0.0) for both in values.values())
    result = "equal" if equal else "within rounding"
    if hidden:
        result += f", {hidden} of them mostly rounding"
    return WrittenFile(name, "equal" if equal else "rounding", f"{counts} {result}{ending}", count)


def describe_other_value(key: str, left: str | None, right: str | None) -> str:
    left, right = ("not there" if value is None else value for value in (left, right))
    return f"{key} is {left} in the original, {right} after the migration"


def compare_storages(name: str, ours: Content, theirs: Content) -> WrittenFile:
    """Compare the bytes of tensors; the file's other values are not read.

    If bytes differ, the result is "not compared": rounding changes bytes too.
    """
    why = ours.unread_reason or theirs.unread_reason
    equal = (np.array_equal(array, theirs.arrays[storage]) for storage, array in ours.arrays.items())
    if ours.arrays.keys() != theirs.arrays.keys() or not all(equal):
        return WrittenFile(name, "not compared", f"{why}; its bytes differ")
    count = len(ours.arrays)
    return WrittenFile(
        name, "equal", f"the bytes of {plural(count, 'tensor')} are equal; the rest is not read: {why}", count
    )


def judge_pixels(runs: ComparedRuns, ours: Content, theirs: Content, pairs: list[ValuePair]) -> list[ValuePair]:
    """Return the pair of pixel arrays; no pair if rounding is allowed and no pixel is off by more than 1 (of 255).

    `pairs`: the pair, or nothing if the second run of a side writes other pixels.
    """
    left, right = ours.arrays["pixels"], theirs.arrays["pixels"]
    if left.shape == right.shape and runs.allowed and int(np.abs(left.astype(int) - right).max(initial=0)) <= 1:
        return []
    return pairs


def find_unstable(first: Content, again: Content | None) -> set[str]:
    """Return the names of values that a second run of the same side (`again`) writes differently or not at all."""
    if again is None:
        return set()
    tensors = {
        name
        for name, array in first.arrays.items()
        if name not in again.arrays
        or array.shape != again.arrays[name].shape
        or measure_distance(array, again.arrays[name]) > REPEAT_TOLERANCE
    }
    texts = ((key, text, again.values.get(key)) for key, text in first.values.items())
    return tensors | {key for key, text, other in texts if not is_same_value(text, other, REPEAT_TOLERANCE)}


def is_same_value(left: str | None, right: str | None, allowed: float) -> bool:
    if left is None or right is None:
        return left is right
    if NUMBER.fullmatch(left) and NUMBER.fullmatch(right):
        return is_alike(left, right, allowed)
    return left == right or normalise_text(left) == normalise_text(right)


def normalise_text(text: str) -> str:
    """Return a text with device names (and device number 0) and times replaced."""
    return TIME.sub("time", re.sub(r"device(?::0)?", "device", DEVICE.sub("device", text)))


# ---- lines


def compare_lines(runs: ComparedRuns, name: str, sides: Contents, again: SecondContents) -> WrittenFile:
    """Compare a text by lines: paired ones by their stable numbers; others differ if both runs of a side write them."""
    left, right = read_lines(sides[0], runs.original), read_lines(sides[1], runs.migrated)
    left_again = read_lines(again[0], runs.original_again) if again[0] and runs.original_again else left
    right_again = read_lines(again[1], runs.migrated_again) if again[1] and runs.migrated_again else right
    pairs = pair_lines(left, right)
    left_numbers, right_numbers = find_stable_numbers(left, left_again), find_stable_numbers(right, right_again)
    bad = []
    is_equal = True  # in all numbers that are compared
    hides_differences = False  # lines differ, but not in the numbers that are compared
    unrepeated = 0  # lines that only one of a side's two runs writes
    for a, b in pairs:
        compared = [
            (x, y) for x, y in zip(left_numbers[a], right_numbers[b], strict=True) if x is not None and y is not None
        ]
        is_equal_line = all(x == y for x, y in compared)
        is_equal = is_equal and is_equal_line
        if left[a] != right[b] and (is_equal_line or len(compared) < len(left_numbers[a])):
            hides_differences = True
        if any(not is_alike(x, y, runs.allowed) for x, y in compared):
            bad.append(f"{describe_line(left[a])} in the original, {describe_line(right[b])} after the migration")
    for lines, others, second, paired, side in (
        (left, right, left_again, {a for a, _ in pairs}, "the original"),
        (right, left, right_again, {b for _, b in pairs}, "the migrated script"),
    ):
        repeated = {a for a, _ in pair_lines(lines, second)}
        unrepeated += len(lines) - len(repeated | paired)
        only = (lines[index] for index in sorted(repeated - paired))
        bad += [f"{describe_line(line)} is written by {side} {describe_absence(line, others)}" for line in only]
    if bad:
        return WrittenFile(name, "differs", describe_some(bad), len(pairs))
    if not pairs:
        return WrittenFile(name, "not compared", "both sides write no line in common, and neither repeats its own")
    result = "equal" if is_equal else "within rounding"
    if hides_differences:
        result += " except for device names and numbers that do not repeat themselves"
    if unrepeated:
        result += f"; not compared, since a second run does not write it: {plural(unrepeated, 'line')}"
    return WrittenFile(name, "equal" if is_equal else "rounding", f"{plural(len(pairs), 'line')} {result}", len(pairs))


def read_lines(content: Content, run: Run) -> list[str]:
    return mask_paths_and_times(content.lines or [], run.plan)


def describe_some(items: list[str]) -> str:
    more = len(items) - MAX_SHOWN
    return "; ".join(items[:MAX_SHOWN]) + (f"; and {more} more" if more > 0 else "")
