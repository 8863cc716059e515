"""Gradients that are zero in theory and only rounding in practice, such as a bias's before a batch norm.

The norm subtracts the mean, so the bias changes nothing and the terms of its gradient cancel. Each side's gradient is
its own rounding, which relative measures cannot judge. The terms are the elements of the gradient of the layer's
output. If each of n terms is off by k roundings, their sum is off by at most k·epsilon·sqrt(n) of the norm of the terms
(Cauchy and Schwarz). A bad gradient that is below this bound on both sides, and the bad update of its bias, are flagged
instead.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from viaduct.comparison.judge import EXACT_ROUNDINGS, find_rounding_unit
from viaduct.comparison.records import Row

MAX_SHARE = 0.01  # of the norm of the terms; in half precision the bound alone would let real gradients pass
Key = tuple[str, int, int]  # operator, step, rank


def flag_rounding_noise(rows: Sequence[Row]) -> list[Row]:
    """Return the rows; bad gradients that are only rounding, and their updates, are flagged."""
    output_gradients: dict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        if row.tensor.role == "grad_output" and row.tensor.index == 0:
            output_gradients[make_operator_key(row)].append(row)
    noise = {
        (*make_operator_key(row), row.tensor.index): reason
        for row in rows
        if row.tensor.role == "gradient" and (reason := explain_rounding(row, output_gradients[make_operator_key(row)]))
    }
    return [flag_row(row, noise.get((*make_operator_key(row), row.tensor.index), "")) for row in rows]


def make_operator_key(row: Row) -> Key:
    return row.op, row.tensor.step, row.tensor.rank


def explain_rounding(row: Row, output_gradients: Sequence[Row]) -> str:
    """Return why the gradient of a bias is only rounding; empty if it is more, or if that is unknown.

    `output_gradients`: of the same layer, one for each of its calls; one axis must be the channels.
    """
    measures, channels = row.measures, math.prod(row.tensor.shape)
    terms = [other.measures for other in output_gradients if other.measures is not None]
    if measures is None or measures.mismatched or len(row.tensor.shape) != 1 or not channels or not terms:
        return ""
    if len(terms) != len(output_gradients) or any(channels not in other.tensor.shape for other in output_gradients):
        return ""
    count = sum(math.prod(other.tensor.shape) for other in output_gradients) / channels
    epsilon = max(find_rounding_unit(other) for other in (row, *output_gradients))
    share = min(EXACT_ROUNDINGS * epsilon * math.sqrt(count), MAX_SHARE)
    for side in ("left", "right"):
        norm = math.sqrt(sum(getattr(term, side).norm ** 2 for term in terms))
        if not getattr(measures, side).norm <= share * norm:
            return ""
    return f"its {count:,.0f} terms cancel: on both sides it is below {share:.1g} of their norm"


def flag_row(row: Row, reason: str) -> Row:
    """Turn a bad gradient or update into a flag if a reason is given."""
    if not reason or row.result != "bad" or row.tensor.role not in ("gradient", "update"):
        return row
    if row.tensor.role == "update":
        return replace(row, result="flag", reason=f"computed from a gradient that is rounding; {row.reason}")
    return replace(row, result="flag", reason=f"rounding: {reason}")
