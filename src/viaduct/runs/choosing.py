"""Choose and order runs by their fields: --filter 'recipe=resnet*' 'top1>90', --sort top1, best --by top1.

A field is one of `facts.FIELDS` or a path in the recipe (`optimizer.lr`). top1 is the best validation top-1 in percent.
A run without a value of the field passes `field=none` and `field!=value` and no other filter. It comes last in any
order.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from viaduct.errors import BadValue, UnknownName
from viaduct.runs.facts import FIELDS, RunFacts, read_field
from viaduct.terminal import escape_controls

CONDITION = re.compile(r"([A-Za-z_][\w.]*)\s*(>=|<=|!=|==|=|>|<)\s*(.*)", re.DOTALL)
LARGEST_FIRST = {"top1", "best", "last", "images_per_s", "began", "changed", "steps", "epoch"}
"""Fields that are sorted from the largest value down."""
MEASURES = {"top1": max, "best": max, "last": max, "loss": min, "images_per_s": max}
"""Measures that `best --by` takes, and whether the largest or the smallest value is the best."""
SYNTHETIC_DATA = "synthetic"
"""Fingerprint and name of data that are noise."""
MAX_LISTED_NAMES = 3
"""Names that a message lists before it is cut."""


@dataclass(frozen=True)
class Condition:
    """One filter, such as `top1>90`."""

    field: str
    sign: str
    text: str

    def holds(self, run: RunFacts) -> bool:
        """Return True if a run fulfils the condition."""
        value = read_field(run, self.field)
        if self.sign in ("=", "==", "!="):
            return is_equal(value, self.text) is not (self.sign == "!=")
        bound, number = read_number(self.text), read_number(value)
        if bound is None or number is None:
            return False
        return {">": number > bound, "<": number < bound, ">=": number >= bound, "<=": number <= bound}[self.sign]


def looks_like_condition(text: str) -> bool:
    return CONDITION.fullmatch(text) is not None


def parse_conditions(texts: list[str], runs: list[RunFacts]) -> list[Condition]:
    """Return the conditions of --filter; raise BadValue for an unknown field or a bound that is no number."""
    conditions = []
    for text in texts:
        match = CONDITION.fullmatch(text.strip())
        if match is None:
            raise BadValue(
                f"--filter {text!r} is no condition.", "Write it as field=value, field!=value or field>number."
            )
        condition = Condition(*match.groups())
        check_field(condition.field, runs, "--filter")
        if condition.sign in ("<", ">", "<=", ">=") and read_number(condition.text) is None:
            raise BadValue(f"--filter {text!r} compares with {condition.text!r}, which is no number.")
        conditions.append(condition)
    return conditions


def check_field(name: str, runs: list[RunFacts], flag: str) -> None:
    """Raise BadValue for a field that is neither in FIELDS nor in a run's recipe; the message names the closest."""
    if name in FIELDS or any(name in run.fields for run in runs):
        return
    known = [*FIELDS, *dict.fromkeys(field for run in runs for field in run.fields)]
    close = difflib.get_close_matches(name, known, n=MAX_LISTED_NAMES, cutoff=0.0)
    error = UnknownName("field", name, known)
    hint = next((hint for hint in error.hints if hint.startswith("Closest")), f"Closest are {', '.join(close)}.")
    raise BadValue(
        f"{flag}: {error.what}",
        hint,
        f"Fields of runs: {', '.join(FIELDS)}; or a field of the recipe, such as optimizer.lr.",
    )


def is_equal(value: Any, text: str) -> bool:
    """Return True if a value matches: as a number if both are numbers, else as a shell pattern.

    `none`, `-` and an empty text match a missing value.
    """
    if value is None:
        return text.lower() in ("none", "-", "")
    number, wanted = read_number(value), read_number(text)
    if number is not None and wanted is not None:
        return number == wanted
    spelled = str(value).lower() if isinstance(value, bool) else str(value)
    return fnmatchcase(spelled, text)


def read_number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def sort_runs(runs: list[RunFacts], field: str) -> list[RunFacts]:
    """Return runs in the order of a field, those without a value last; a minus sign before it reverses the order."""
    name = field.removeprefix("-")
    check_field(name, runs, "--sort")
    known = [run for run in runs if read_field(run, name) is not None]
    known.sort(key=order_key(name), reverse=(name in LARGEST_FIRST) is not field.startswith("-"))
    return [*known, *(run for run in runs if read_field(run, name) is None)]


def order_key(name: str) -> Callable[[RunFacts], tuple[int, float, str]]:
    """Return a sort key for a field: numbers by value, then texts by spelling."""

    def key(run: RunFacts) -> tuple[int, float, str]:
        value = read_field(run, name)
        number = read_number(value)
        return (1, 0.0, str(value)) if number is None else (0, number, "")

    return key


@dataclass(frozen=True)
class Best:
    """The runs with the best value of a measure, and how many runs were left out."""

    runs: list[RunFacts]
    considered: int
    """Runs that have a value and are not left out."""
    without: int
    """Runs that have no value of the measure."""
    on_noise: int
    """Runs on noise, whose accuracies and losses say nothing."""
    tied: list[RunFacts] = dataclasses.field(default_factory=list)
    """Runs beyond the listed ones whose value equals that of the last listed run."""


def find_best(runs: list[RunFacts], measure: str, count: int) -> Best:
    """Return the `count` best runs by a measure; runs on noise compete in images_per_s only."""
    if measure not in MEASURES:
        raise UnknownName("measure", measure, MEASURES)
    learned = [run for run in runs if measure == "images_per_s" or not is_on_noise(run)]
    known = [run for run in learned if read_field(run, measure) is not None]
    known.sort(key=lambda run: float(read_field(run, measure)), reverse=MEASURES[measure] is max)
    tied = [run for run in known[count:] if read_field(run, measure) == read_field(known[count - 1], measure)]
    return Best(known[:count], len(known), len(learned) - len(known), len(runs) - len(learned), tied)


def describe_best(found: Best, measure: str) -> list[str]:
    """Return the lines below the table of the best runs: of how many, which others tie, and what was left out."""
    left_out = [f"{found.without:,} without a value"] * bool(found.without)
    left_out += [f"{found.on_noise:,} on noise"] * bool(found.on_noise)
    lines = [f"best of {found.considered:,} by {measure}" + (f"; left out: {', '.join(left_out)}" if left_out else "")]
    if found.tied:
        names = ", ".join(run.name for run in found.tied[:MAX_LISTED_NAMES]) + (
            ", …" if len(found.tied) > MAX_LISTED_NAMES else ""
        )
        count = len(found.tied)
        lines.append(escape_controls(f"tied with {count:,} {'other' if count == 1 else 'others'}: {names}"))
    if measure == "loss":
        values = ", ".join(f"{run.name} {run.loss:.4g}" for run in found.runs)
        lines.append(escape_controls(f"training loss of the last log line: {values}"))
    return lines


def is_on_noise(run: RunFacts) -> bool:
    return run.fingerprint == SYNTHETIC_DATA or (run.data_path is not None and run.data == SYNTHETIC_DATA)
