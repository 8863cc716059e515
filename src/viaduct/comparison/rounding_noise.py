"""Gradients that are zero in theory and only rounding in practice: those of a bias before a batch norm.

The norm subtracts the mean, so the bias changes nothing and the terms of its gradient cancel. The remaining value is
each side's own rounding, which relative measures cannot judge. If each of the n terms of a sum is off by k roundings,
the sum is off by at most k·epsilon·sqrt(n) of the norm of the terms (Cauchy and Schwarz). The terms of a bias's
gradient are the elements of the layer's output gradient. If both sides are below this bound, a bad gradient and the
weight's bad update become flags.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from viaduct.comparison.judge import EXACT_ROUNDINGS, find_rounding_unit
from viaduct.comparison.rows import Row

MAX_SHARE = 0.01  # of the terms' norm; in half precision the bound alone would let true gradients pass
Key = tuple[str, int, int]  # operator, step, rank


def flag_rounding_noise(rows: Sequence[Row]) -> list[Row]:
    """Return the rows; bad gradients that are only rounding, and their updates, are flagged."""
    arriving: dict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        if row.tensor.role == "grad_output" and row.tensor.index == 0:
            arriving[make_operator_key(row)].append(row)
    noise = {
        (*make_operator_key(row), row.tensor.index): reason
        for row in rows
        if row.tensor.role == "gradient" and (reason := explain_rounding(row, arriving[make_operator_key(row)]))
    }
    return [flag_row(row, noise.get((*make_operator_key(row), row.tensor.index), "")) for row in rows]


def make_operator_key(row: Row) -> Key:
    return row.op, row.tensor.step, row.tensor.rank


def explain_rounding(row: Row, arriving: Sequence[Row]) -> str:
    """Return why a bias gradient is only rounding; empty if it is more, or if that is unknown.

    `arriving`: the layer's output gradients; one of their axes must be the channels.
    """
    measures, channels = row.measures, math.prod(row.tensor.shape)
    gradients = [other.measures for other in arriving if other.measures is not None]
    if measures is None or measures.mismatched or len(row.tensor.shape) != 1 or not channels or not gradients:
        return ""
    if len(gradients) != len(arriving) or any(channels not in other.tensor.shape for other in arriving):
        return ""
    terms = sum(math.prod(other.tensor.shape) for other in arriving) / channels
    epsilon = max(find_rounding_unit(other) for other in (row, *arriving))
    share = min(EXACT_ROUNDINGS * epsilon * math.sqrt(terms), MAX_SHARE)
    for side in ("left", "right"):
        size = math.sqrt(sum(getattr(gradient, side).norm ** 2 for gradient in gradients))
        if not getattr(measures, side).norm <= share * size:
            return ""
    return f"its {terms:,.0f} terms cancel: on both sides it is below {share:.1g} of their norm"


def flag_row(row: Row, reason: str) -> Row:
    """Turn a bad gradient or update into a flag if a reason is given."""
    if not reason or row.result != "bad" or row.tensor.role not in ("gradient", "update"):
        return row
    if row.tensor.role == "update":
        return replace(row, result="flag", reason=f"computed from a gradient that is rounding; {row.reason}")
    return replace(row, result="flag", reason=f"rounding: {reason}")
