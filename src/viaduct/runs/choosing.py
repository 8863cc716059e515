"""Filters and order of runs: `viaduct runs --filter 'recipe=resnet*' --sort top1`, `viaduct runs best --by top1`.

A field is one of `facts.FIELDS` or a path in the recipe (`optimizer.lr`). top1 is the best validation top-1 in percent.
A run without a value of a field passes `field=none` and `field!=value`, no other condition, and comes last in any
order.
"""

from __future__ import annotations

import dataclasses
import difflib
import operator
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from viaduct.errors import BadValue, UnknownName, find_closest
from viaduct.runs.facts import FIELDS, RunFacts, read_field
from viaduct.terminal import escape_controls

CONDITION = re.compile(r"([A-Za-z_][\w.]*)\s*(>=|<=|!=|==|=|>|<)\s*(.*)", re.DOTALL)
LARGEST_FIRST = {"top1", "best", "last", "images_per_s", "began", "changed", "steps", "epoch"}
"""Fields that are sorted from the largest value down."""
MEASURES = {"top1": max, "best": max, "last": max, "loss": min, "images_per_s": max}
"""Measures of `best --by`; the largest or the smallest value is the best."""
SYNTHETIC_DATA = "synthetic"  # fingerprint and path of the data of `--data synthetic`
MAX_LISTED_NAMES = 3
COMPARISONS = {">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le}


@dataclass(frozen=True)
class Condition:
    """One filter, such as `top1>90`: field `top1`, sign `>`, operand `90`."""

    field: str
    sign: str
    operand: str

    def is_met(self, run: RunFacts) -> bool:
        """Return True if a run passes the filter."""
        value = read_field(run, self.field)
        if self.sign == "!=":
            return not is_equal(value, self.operand)
        if self.sign not in COMPARISONS:
            return is_equal(value, self.operand)
        bound, number = read_number(self.operand), read_number(value)
        return bound is not None and number is not None and bool(COMPARISONS[self.sign](number, bound))


def is_condition(text: str) -> bool:
    return CONDITION.fullmatch(text) is not None


def parse_conditions(texts: list[str], runs: list[RunFacts]) -> list[Condition]:
    """Return the conditions of --filter; raise BadValue for an invalid one, with the reason."""
    conditions = []
    for text in texts:
        match = CONDITION.fullmatch(text.strip())
        if match is None:
            raise BadValue(
                f"--filter {text!r} is not a condition.", "Write it as field=value, field!=value or field>number."
            )
        condition = Condition(*match.groups())
        check_field(condition.field, runs, "--filter")
        if condition.sign in COMPARISONS and read_number(condition.operand) is None:
            raise BadValue(f"--filter {text!r} compares with {condition.operand!r}, which is not a number.")
        conditions.append(condition)
    return conditions


def check_field(name: str, runs: list[RunFacts], flag: str) -> None:
    """Raise BadValue for a field that is neither in FIELDS nor in a run's recipe; the message names the closest."""
    if name in FIELDS or any(name in run.fields for run in runs):
        return
    known = [*FIELDS, *dict.fromkeys(field for run in runs for field in run.fields)]
    closest = find_closest(name, known)
    less_similar = difflib.get_close_matches(name, known, n=MAX_LISTED_NAMES, cutoff=0.0)
    raise BadValue(
        f"{flag}: no field called {name!r}.",
        f"Closest is {closest!r}." if closest else f"Closest are {', '.join(less_similar)}.",
        f"Fields of runs: {', '.join(FIELDS)}; or a field of the recipe, such as optimizer.lr.",
    )


def is_equal(value: Any, text: str) -> bool:
    """Return True if a value equals the number or matches the pattern in `text`; None matches `none`, `-` and ""."""
    if value is None:
        return text.lower() in ("none", "-", "")
    number, expected = read_number(value), read_number(text)
    if number is not None and expected is not None:
        return number == expected
    return fnmatchcase(str(value).lower() if isinstance(value, bool) else str(value), text)


def read_number(value: Any) -> float | None:
    """Convert a number, or the text of one, to a float; None for a bool and anything else."""
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def sort_runs(runs: list[RunFacts], field: str) -> list[RunFacts]:
    """Sort runs by a field, those without a value last; a minus sign before the field reverses the order."""
    name = field.removeprefix("-")
    check_field(name, runs, "--sort")

    def sort_key(run: RunFacts) -> tuple[int, float, str]:
        """Sort numbers by value before texts by spelling."""
        value = read_field(run, name)
        number = read_number(value)
        return (1, 0.0, str(value)) if number is None else (0, number, "")

    with_value = [run for run in runs if read_field(run, name) is not None]
    has_minus = field.startswith("-")
    with_value.sort(key=sort_key, reverse=not has_minus if name in LARGEST_FIRST else has_minus)
    return [*with_value, *(run for run in runs if read_field(run, name) is None)]


@dataclass(frozen=True)
class Ranking:
    """The runs with the best value of a measure, and the numbers of runs that were compared and left out."""

    runs: list[RunFacts]
    considered: int  # number of runs that were compared
    without_value: int  # number of runs that do not have the measure
    on_noise: int  # number of runs on noise (`--data synthetic`), which are not compared by accuracy or loss
    tied: list[RunFacts] = dataclasses.field(default_factory=list)  # further runs with the value of the last in `runs`


def find_best(runs: list[RunFacts], measure: str, count: int) -> Ranking:
    """Return the `count` best runs by a measure; runs on noise are compared by images_per_s only."""
    if measure not in MEASURES:
        raise UnknownName("measure", measure, MEASURES)
    eligible = [run for run in runs if measure == "images_per_s" or not is_on_noise(run)]
    ranked = [run for run in eligible if read_field(run, measure) is not None]
    ranked.sort(key=lambda run: float(read_field(run, measure)), reverse=MEASURES[measure] is max)
    tied = [run for run in ranked[count:] if read_field(run, measure) == read_field(ranked[count - 1], measure)]
    return Ranking(ranked[:count], len(ranked), len(eligible) - len(ranked), len(runs) - len(eligible), tied)


def describe_best(best: Ranking, measure: str) -> list[str]:
    """Return the lines below the table of the best runs: number of runs, ties, and runs that were left out."""
    left_out = [f"{best.without_value:,} without a value"] if best.without_value else []
    left_out += [f"{best.on_noise:,} on noise"] if best.on_noise else []
    lines = [f"best of {best.considered:,} by {measure}" + (f"; left out: {', '.join(left_out)}" if left_out else "")]
    if best.tied:
        names = [run.name for run in best.tied[:MAX_LISTED_NAMES]]
        names += ["…"] if len(best.tied) > MAX_LISTED_NAMES else []
        noun = "other" if len(best.tied) == 1 else "others"
        lines.append(escape_controls(f"tied with {len(best.tied):,} {noun}: {', '.join(names)}"))
    if measure == "loss":
        values = ", ".join(f"{run.name} {run.loss:.4g}" for run in best.runs)
        lines.append(escape_controls(f"training loss of the last log line: {values}"))
    return lines


def is_on_noise(run: RunFacts) -> bool:
    """Return True if a run was trained with `--data synthetic`."""
    return SYNTHETIC_DATA in (run.fingerprint, run.data_path)
