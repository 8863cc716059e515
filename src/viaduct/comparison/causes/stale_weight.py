"""A weight that was not updated, or that comes from an earlier step."""

from __future__ import annotations

import numpy as np

from viaduct.comparison.divergence import ArrayPair, Divergence, correlation, rms
from viaduct.comparison.records import Cause, Row
from viaduct.comparison.replay import replay_origin

NAME = "stale weight"
ADVICE = (
    "Check that this weight is in the optimizer's list and its requires_grad is on, that nothing keeps an old copy (a "
    "cast copy, a captured graph, an unsynchronised rank), and that both sides loaded the same checkpoint."
)
ENOUGH = 0.8  # share of the difference that the left side's earlier weight must explain


def find_cause(divergence: Divergence) -> Cause | None:
    arrays = divergence.load_float_arrays()
    if arrays is None:
        return None
    if divergence.role == "update":
        return explain_zero_update(arrays)
    if divergence.role == "output":
        return explain_old_copy(divergence)
    return explain_earlier_value(divergence, arrays) if divergence.role == "parameter" else None


def explain_old_copy(divergence: Divergence) -> Cause | None:
    """Report a layer that computed with the weight of an earlier step."""
    weight, replay = divergence.find_weight(), replay_origin(divergence)
    if weight is None or replay is None:
        return None
    for row in find_earlier_weights(divergence, weight.tensor.index):
        earlier = divergence.load_row(row)
        if earlier is not None and earlier.left.size == replay.weight_OIHW.size:
            share = replay.explained_share(replay.predict(weight=earlier.left.reshape(replay.weight_OIHW.shape)))
            if share > ENOUGH:
                step = row.tensor.step
                evidence = (
                    f"computed again with the left's weight of step {step}, {share:.0%} of the difference is gone"
                )
                return Cause(NAME, evidence, ADVICE, confidence=0.97 * share)
    return None


def explain_zero_update(arrays: ArrayPair) -> Cause | None:
    """Report an update that is zero, or almost, on one side only."""
    for side, values, other in (("left", arrays.left, arrays.right), ("right", arrays.right, arrays.left)):
        if rms(values) <= 1e-6 * rms(other):
            size = f"a root mean square of {rms(other):.3g}"
            evidence = f"the {side} side's update is zero or almost zero; the other side's has {size}"
            return Cause(NAME, evidence, ADVICE, confidence=0.97)
    return None


def explain_earlier_value(divergence: Divergence, arrays: ArrayPair) -> Cause | None:
    """Report a weight that equals its value at an earlier step, or that is correlated with the other side's."""
    for row in find_earlier_weights(divergence, divergence.row.tensor.index):
        earlier = divergence.load_row(row)
        if earlier is None:
            continue
        for side, now, weight, then in (
            ("left", arrays.left, "its weight", earlier.left),
            ("left", arrays.left, "the right side's weight", earlier.right),
            ("right", arrays.right, "its weight", earlier.right),
        ):
            if np.array_equal(now, then):
                step = divergence.origin.step
                evidence = f"at step {step} the {side} side holds {weight} of step {row.tensor.step}, unchanged"
                return Cause(NAME, evidence, ADVICE, confidence=0.97)
    similarity = correlation(arrays.left, arrays.right)
    if similarity < 0.9:
        return None
    evidence = f"correlation {similarity:.4f} between the sides, as between the same weight at different steps"
    return Cause(NAME, evidence, ADVICE, confidence=0.5)


def find_earlier_weights(divergence: Divergence, index: int) -> list[Row]:
    """Return the same weight's rows at earlier steps, latest first."""
    steps = sorted(
        {row.tensor.step for row in divergence.rows if row.tensor.step < divergence.origin.step}, reverse=True
    )
    return [row for step in steps for row in divergence.find_rows("parameter", index, step=step)]
