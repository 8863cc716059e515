"""Comparison of all recorded tensors of two runs, as `viaduct compare` does it, with measured thresholds.

The migrated run is the left side and the original the right side (in an agreement it is the other way round). Tensors
are paired by name. OUT/comparison holds the page, drift.csv and summary.json.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from viaduct.carrying.agreement import (
    EXTRA_UNITS,
    NOISE_FACTOR,
    UNINFORMATIVE_TOLERANCE,
    Agreement,
    PairKey,
    ValuePair,
    name_loss,
    set_tolerances,
)
from viaduct.comparison.drift import ChooseThresholds, Drift, Options, compare_pairs
from viaduct.comparison.readers import rehearsal
from viaduct.comparison.records import Pair, Row, StoredTensor
from viaduct.comparison.thresholds import DEFAULTS, WHOLE_NUMBERS, Thresholds

EXACTLY_EQUAL = Thresholds(euclid=0.0, differing=0.0)
DEFAULT_MODULE_THRESHOLD = 1e-5  # relative; of a module's inputs and outputs if there is no perturbed run
# Where the thresholds come from, for the report.
MEASURED = (
    f"measured: {NOISE_FACTOR:g} times the drift of a run whose weights were moved by one unit in the last place, plus "
    f"{EXTRA_UNITS:g} units in the last place"
)
NOT_MEASURED = (
    f"not measured, since no run with moved weights can be used: at most {EXTRA_UNITS:g} units in the last place for "
    f"losses, gradients and weights, {DEFAULT_MODULE_THRESHOLD:g} for inputs and outputs of modules"
)
AMPLIFIED = (
    "no evidence: the script amplifies one unit in the last place to about "
    f"{UNINFORMATIVE_TOLERANCE / NOISE_FACTOR:.1%} of this value or more"
)

Key = tuple[int, int, str, str, int, int]  # rank, step, role, operator, index and call


def compare_records(
    migrated: str | Path, original: str | Path, choose_thresholds: ChooseThresholds, source: str = ""
) -> Drift:
    """Compare the recorded tensors of two rehearsals. `source`: where the thresholds come from, for the report."""
    left, right = rehearsal.read_record(Path(migrated)), rehearsal.read_record(Path(original))
    pairs = pair_by_name(left.tensors, right.tensors)
    return compare_pairs(left, right, pairs, Options(threshold_source=source), choose_thresholds=choose_thresholds)


def compare_tensors(
    migrated: str | Path, original: str | Path, perturbed: str | Path | None, agreement: Agreement
) -> Drift:
    """Compare losses, gradients and weights with the agreement's tolerances, and inputs and outputs of modules.

    The threshold of a module is measured by the perturbed run, if there is one. An unsure agreement has no tolerances,
    and a perturbed run that is far off measures none: then the tolerances are those without a perturbed run.
    """
    if agreement.verdict == "unsure":
        perturbed, agreement = None, replace(agreement, pairs=set_tolerances(agreement.pairs, []))
    noise = measure_noise(perturbed, original) if perturbed is not None else {}
    source = MEASURED if perturbed is not None else NOT_MEASURED
    drift = compare_records(migrated, original, make_threshold_function(agreement, noise), source)
    judged = {pair.key: pair for pair in agreement.pairs}
    rows = (
        row if (key := make_agreement_key(row.tensor)) is None else apply_agreement(row, judged.get(key))
        for row in drift.rows
    )
    return replace(drift, rows=tuple(rows))


def pair_by_name(left: tuple[StoredTensor, ...], right: tuple[StoredTensor, ...]) -> list[Pair]:
    """Pair tensors of the same rank, step, role, name, index and call; others become one-sided pairs."""
    theirs = {make_key(tensor): tensor for tensor in right}
    ours = {make_key(tensor) for tensor in left}
    pairs = [make_pair(tensor, theirs.get(make_key(tensor))) for tensor in left]
    pairs += [make_pair(None, tensor) for tensor in right if make_key(tensor) not in ours]
    pairs.sort(key=make_execution_key)
    return [replace(pair, group=number) for number, pair in enumerate(pairs)]


def make_pair(left: StoredTensor | None, right: StoredTensor | None) -> Pair:
    names = (left.op if left else "", right.op if right else "")
    if left and right:
        return Pair(0, left, right, *names, "name")
    reason = f"only {'the original' if left is None else 'the migrated script'} has it"
    return Pair(0, left, right, *names, "none", reason=reason)


def make_key(tensor: StoredTensor) -> Key:
    return tensor.rank, tensor.step, tensor.role, tensor.op, tensor.index, tensor.call


def make_execution_key(pair: Pair) -> tuple[int, int, int]:
    tensor = pair.left or pair.right
    assert tensor is not None
    return tensor.step, tensor.order, tensor.rank


def make_threshold_function(agreement: Agreement, noise: Mapping[Key, float]) -> ChooseThresholds:
    """Return a function that returns the thresholds of a pair.

    For a loss, gradient or weight it is the agreement's tolerance. For a module's input or output it is computed from
    its noise. `noise`: the result of `measure_noise`; empty if there is no perturbed run.
    """
    allowed = {pair.key: pair.allowed for pair in agreement.pairs}

    def choose_thresholds(pair: Pair) -> Thresholds:
        tensor = pair.right or pair.left
        assert tensor is not None
        if tensor.dtype not in DEFAULTS:
            return WHOLE_NUMBERS
        if (key := make_agreement_key(tensor)) is not None:
            return Thresholds(euclid=allowed.get(key, 0.0))
        if not noise:
            return Thresholds(euclid=DEFAULT_MODULE_THRESHOLD)
        return Thresholds(euclid=NOISE_FACTOR * noise.get(make_key(tensor), 0.0) + EXTRA_UNITS * find_epsilon(tensor))

    return choose_thresholds


def make_agreement_key(tensor: StoredTensor) -> PairKey | None:
    """Return the key of a tensor in an agreement; None for the inputs and outputs of modules."""
    if tensor.op == rehearsal.LOSS and tensor.order == rehearsal.AFTER_CALLS:
        return "loss", name_loss(tensor.index), tensor.rank, tensor.step
    if tensor.role == "gradient":
        return "gradient", tensor.op, tensor.rank, 0
    return ("weight", tensor.op, tensor.rank, None) if tensor.role == "parameter" else None


def find_epsilon(tensor: StoredTensor) -> float:
    """Return the machine epsilon of a tensor's dtype; 0 for any but float16, float32 and float64."""
    return float(np.finfo(np.dtype(tensor.dtype)).eps) if tensor.dtype in ("float16", "float32", "float64") else 0.0


def measure_noise(perturbed: str | Path, original: str | Path) -> dict[Key, float]:
    """Return the relative difference of each recorded tensor between the original and the perturbed run."""
    drift = compare_records(perturbed, original, lambda pair: EXACTLY_EQUAL)
    return {
        make_key(row.tensor): error
        for row in drift.rows
        if row.measures is not None and math.isfinite(error := row.measures.relative_euclidean)
    }


def apply_agreement(row: Row, judged: ValuePair | None) -> Row:
    """Return the row with the agreement's result: refused if the pair is not informative, bad if the pair is bad."""
    if judged is None or judged.same:
        return row
    if not judged.is_informative and not judged.why:
        return replace(row, result="refused", reason=AMPLIFIED, follows_from="")
    return replace(row, result="bad", reason=row.reason or judged.why) if judged.bad else row


def find_first_differing_call(drift: Drift) -> Row | None:
    """Return the first row of a module's input or output that differs or was not compared, of the lowest rank."""
    calls = [row for row in drift.rows if make_agreement_key(row.tensor) is None and not is_within_limits(row)]
    return min(calls, key=lambda row: (row.tensor.rank, row.tensor.step, row.tensor.order), default=None)


def is_within_limits(row: Row) -> bool:
    """Return True for a good row, and for one that is only flagged because both sides have NaN in the same places."""
    return row.result == "good" or (row.measures is not None and row.result == "flag" and row.measures.identical)


def find_first_differing_module(again: str | Path, first: str | Path) -> str | None:
    """Return the first module whose recorded input or output differs between two runs of one side, or None."""
    row = find_first_differing_call(compare_records(again, first, lambda pair: EXACTLY_EQUAL))
    return None if row is None else describe_call(row)


def describe_call(row: Row) -> str:
    """Return a module's name, with the number of its input."""
    return f"{row.op} {row.tensor.role} {row.tensor.index}" if row.tensor.role == "input" else row.op
