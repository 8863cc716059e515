"""Gradients that are zero in theory, and rounding in practice: a bias in front of a batch norm.

The norm takes the mean away, so the bias changes nothing and the terms of its gradient cancel. What is left is each
side's own rounding, and no relative measure of it means anything. If every one of the n terms of a sum is off by k
roundings of their size, the sum is off by at most k·epsilon·sqrt(n) of the norm of the terms (Cauchy and Schwarz). The
terms of a bias's gradient are what comes in backwards. Where both sides lie below that bound, neither holds more than
rounding: a flag, whatever the measures say, and so is the update that is made of it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from viaduct.comparison.judge import ROUNDINGS, rounding
from viaduct.comparison.rows import Row

MOST = 0.01  # of the terms' norm; in half precision the bound alone would let true gradients pass
Key = tuple[str, int, int]


def without_noise(rows: Sequence[Row]) -> list[Row]:
    """The rows; bad gradients that are nothing but rounding, and the updates made of them, as flags."""
    arriving: dict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        if row.stored.role == "grad_output" and row.stored.index == 0:
            arriving[key(row)].append(row)
    noise = {
        (*key(row), row.stored.index): reason
        for row in rows
        if row.stored.role == "gradient" and (reason := only_rounding(row, arriving[key(row)]))
    }
    return [quietened(row, noise.get((*key(row), row.stored.index), "")) for row in rows]


def key(row: Row) -> Key:
    return row.op, row.stored.step, row.stored.rank


def only_rounding(row: Row, arriving: Sequence[Row]) -> str:
    """Why a bias's gradient is rounding; nothing where it is more, or where it cannot be known."""
    measures, channels = row.measures, math.prod(row.stored.shape)
    seen = [(other, other.measures) for other in arriving if other.measures is not None]
    if measures is None or measures.mismatched or len(row.stored.shape) != 1 or not channels or not seen:
        return ""
    if len(seen) != len(arriving) or any(channels not in other.stored.shape for other in arriving):
        return ""
    terms = sum(math.prod(other.stored.shape) for other in arriving) / channels
    epsilon = max(rounding(other) for other in (row, *arriving))
    share = min(ROUNDINGS * epsilon * math.sqrt(terms), MOST)
    for side in ("left", "right"):
        size = math.sqrt(sum(getattr(found, side).norm ** 2 for _, found in seen))
        if not getattr(measures, side).norm <= share * size:
            return ""
    return f"its terms cancel: on both sides it is below {share:.1g} of the {terms:,.0f} terms it is summed from"


def quietened(row: Row, reason: str) -> Row:
    if not reason or row.result != "bad" or row.stored.role not in ("gradient", "update"):
        return row
    if row.stored.role == "update":
        return replace(row, result="flag", reason=f"made of a gradient that is rounding; {row.reason}")
    return replace(row, result="flag", reason=f"rounding: {reason}")
