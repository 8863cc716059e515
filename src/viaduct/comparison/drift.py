"""Comparison of two dumps from end to end: read, align, measure, judge, explain."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from viaduct.comparison import readers
from viaduct.comparison.align import align
from viaduct.comparison.explain import explain
from viaduct.comparison.judge import judge
from viaduct.comparison.measures import Measures
from viaduct.comparison.measuring import Answer, Measured, measure_pairs
from viaduct.comparison.naming import Steps, parse_patterns
from viaduct.comparison.passes import KldVariant
from viaduct.comparison.records import INSERTED, Explanation, Pair, Result, Row, StoredDump
from viaduct.comparison.rounding_noise import flag_rounding_noise
from viaduct.comparison.thresholds import Thresholds, judge_measures
from viaduct.errors import BadData, BadValue

LEVELS = {"op": "operators (level op)", "module": "modules (level module)"}  # what a dump of each --level holds
Progress = Callable[[Iterable[Measured], int], Iterable[Measured]]  # wraps the measured pairs; the int is their number
ChooseThresholds = Callable[[Pair], Thresholds | None]


@dataclass(frozen=True)
class Options:
    """Options of a comparison."""

    graph: Path | None = None  # compiled graph of the left side
    graph_right: Path | None = None  # of the right side
    rules: Path | None = None  # the user's rules for pairing operators (rules.py)
    steps: Steps | None = None  # None: all
    only: str = ""  # patterns of operator names, separated by commas; empty: all
    thresholds: Thresholds | None = None  # None: defaults by dtype
    kld: KldVariant = "book"  # variant of the KL divergence
    workers: int | None = None  # processes that measure; None: one for each core if that is worth it
    threshold_source: str = ""  # for the page: where the thresholds come from, if each pair has its own


@dataclass(frozen=True)
class Drift:
    """Result of comparing two dumps."""

    left: StoredDump
    right: StoredDump
    rows: tuple[Row, ...]
    explanation: Explanation
    options: Options
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """Return 2 if no pair was compared, 1 if something is bad or refused, otherwise 0.

        Flagged pairs were compared. New ones have no counterpart by the graph or the rules file.
        """
        if not any(row.is_compared for row in self.rows):
            return 2
        return 1 if any(row.result in ("bad", "refused") for row in self.rows) else 0


def compare(left: Path, right: Path, options: Options, progress: Progress = lambda measured, _: measured) -> Drift:
    """Compare two dumps. `progress` wraps the iteration over the measured pairs."""
    sides = readers.read(left), readers.read(right)
    if options.rules is None:
        require_same_level(*sides)
    alignment = align(*sides, graph=options.graph, rules=options.rules, graph_right=options.graph_right)
    swapped = readers.describe_swap(*sides)
    notes = [swapped] if swapped else []
    notes += [f"{name}: {note}" for name, side in zip(("left", "right"), sides, strict=True) for note in side.notes]
    pairs = select_pairs(alignment.pairs, options)
    notes += describe_unmatched_selection(pairs, options)
    drift = compare_pairs(*sides, pairs, options, edges=alignment.edges, progress=progress)
    return replace(drift, notes=(*notes, *alignment.notes, *drift.notes))


def compare_pairs(
    left: StoredDump,
    right: StoredDump,
    pairs: list[Pair],
    options: Options,
    *,
    edges: Mapping[str, tuple[str, ...]] | None = None,
    choose_thresholds: ChooseThresholds | None = None,
    progress: Progress = lambda measured, _: measured,
) -> Drift:
    """Measure, judge and explain pairs of tensors.

    `edges`: operator -> the operators whose outputs it reads, by their names on the left side. `choose_thresholds`
    returns the thresholds of one pair; without it, `options.thresholds` is used for all.
    """
    measured = progress(measure_pairs(pairs, options.workers, options.kld), len(pairs))
    rows = [
        make_row(pair, answer, choose_thresholds(pair) if choose_thresholds else options.thresholds)
        for pair, answer in measured
    ]
    if choose_thresholds is None and (options.thresholds is None or options.thresholds.max_abs is None):
        rows = flag_rounding_noise(rows)  # a limit of the absolute error already says how much noise is allowed
    judgement = judge(rows, edges or {})
    explanation = explain(judgement, edges or {})
    return Drift(left, right, judgement.rows, explanation, options, explanation.notes)


def require_same_level(left: StoredDump, right: StoredDump) -> None:
    """Raise BadValue if one dump is of operators and one of modules: by shape unrelated tensors would be paired."""
    left_level, right_level = left.settings.get("level", ""), right.settings.get("level", "")
    if left_level and right_level and left_level != right_level:
        raise BadValue(
            f"the left dump holds {LEVELS.get(left_level, left_level)}, "
            f"the right one {LEVELS.get(right_level, right_level)}.",
            "Dump both with the same --level (viaduct train: --dump-level), or give the pairs in a --rules file.",
        )


def select_pairs(pairs: list[Pair], options: Options) -> list[Pair]:
    """Return the pairs of the selected steps and operators; raise an error if there are none."""
    steps, patterns = {step for pair in pairs for step in list_steps(pair)}, parse_patterns(options.only).patterns
    if options.steps is not None and not any(step in options.steps for step in steps):
        available = ", ".join(map(str, sorted(steps)))
        raise BadValue(f"the dumps hold no step {options.steps.describe_missing(())}.", f"They hold: {available}.")
    if not pairs:
        raise BadData("the two dumps hold no tensors.")
    selected = [
        pair
        for pair in pairs
        if options.steps is None or any(step in options.steps for step in list_steps(pair))
        if not patterns or any(map(partial(has_name_like, pair), patterns))
    ]
    if not selected:
        where = "" if options.steps is None else " in the selected steps"
        example = f"There is, for example, {pairs[0].left_op!r}."
        raise BadValue(f"no operator is called like {options.only!r}{where}.", example)
    return selected


def describe_unmatched_selection(pairs: Sequence[Pair], options: Options) -> list[str]:
    """Return notes on selected steps that neither dump has, and on patterns that match none of the selected `pairs`."""
    notes = []
    steps = {step for pair in pairs for step in list_steps(pair)}
    if options.steps is not None and (missing := options.steps.describe_missing(steps)):
        notes.append(f"step {missing}: the dumps hold none of the selected tensors")
    for pattern in parse_patterns(options.only).patterns:
        if not any(has_name_like(pair, pattern) for pair in pairs):
            notes.append(f"no operator is called like {pattern!r}")
    return notes


def list_steps(pair: Pair) -> list[int]:
    return [tensor.step for tensor in (pair.left, pair.right) if tensor is not None]


def has_name_like(pair: Pair, pattern: str) -> bool:
    """Return True if the operator or the tensor (conv1:output:0) of a side has a name that matches."""
    tensors = [tensor for tensor in (pair.left, pair.right) if tensor is not None]
    return any(fnmatch.fnmatchcase(name, pattern) for tensor in tensors for name in (tensor.op, tensor.tensor_index))


def make_row(pair: Pair, answer: Answer, thresholds: Thresholds | None) -> Row:
    """Return the row of a pair with its measures and verdict, or with the reason why it has no measures."""
    if isinstance(answer, Measures):
        result, reason = judge_measures(answer, thresholds)
        return Row(pair, answer, result, "; ".join(part for part in (pair.reason, reason) if part))
    return Row(pair, None, choose_missing_result(pair), answer.reason or pair.reason)


def choose_missing_result(pair: Pair) -> Result:
    """Return the result of a pair without measures: new if one side's operator is named *, else refused.

    The name * says that nothing corresponds to the other side's operator, by the graph or the rules file.
    """
    if any(tensor is not None and tensor.fault for tensor in (pair.left, pair.right)):
        return "refused"
    return "new" if INSERTED in (pair.left_op, pair.right_op) else "refused"
