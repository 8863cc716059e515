"""A weight that was not updated, or that comes from an earlier step."""

from __future__ import annotations

import numpy as np

from viaduct.comparison.replay import replay_origin
from viaduct.comparison.rows import Cause, Row
from viaduct.comparison.scene import Both, Scene, correlation, rms

NAME = "stale weight"
ADVICE = (
    "Check that this weight is in the optimizer's list and its requires_grad is on, that nothing keeps an old copy (a "
    "cast copy, a captured graph, an unsynchronised rank), and that both sides loaded the same checkpoint."
)


def find_cause(scene: Scene) -> Cause | None:
    both = scene.load_origin()
    if both is None or both.left.dtype.kind != "f":
        return None
    if scene.role == "update":
        return explain_zero_update(both)
    if scene.role == "output":
        return explain_old_copy(scene)
    return explain_earlier_value(scene, both) if scene.role == "parameter" else None


def explain_old_copy(scene: Scene) -> Cause | None:
    """Report a layer that computed with the weight of an earlier step."""
    weight, replay = scene.find_weight(), replay_origin(scene)
    if weight is None or replay is None:
        return None
    for row in find_earlier_weights(scene, weight.stored.index):
        past = scene.load_row(row)
        if past is not None and past.left.size == replay.weight_OIHW.size:
            share = replay.explained_share(replay.predict(weight=past.left.reshape(replay.weight_OIHW.shape)))
            if share > 0.8:
                step = row.stored.step
                evidence = f"computed again with the weight of step {step}, {share:.0%} of the difference is gone"
                return Cause(NAME, 0.97 * share, evidence, ADVICE)
    return None


def explain_zero_update(both: Both) -> Cause | None:
    """Report an update that is zero, or almost, on one side only."""
    for side, values, other in (("left", both.left, both.right), ("right", both.right, both.left)):
        if rms(values) <= 1e-6 * rms(other):
            size = f"a root mean square of {rms(other):.3g}"
            evidence = f"the {side} side's update is zero or almost zero; the other side's has {size}"
            return Cause(NAME, 0.97, evidence, ADVICE)
    return None


def explain_earlier_value(scene: Scene, both: Both) -> Cause | None:
    """Report a weight that equals its value at an earlier step, or that is correlated with the other side's."""
    for row in find_earlier_weights(scene, scene.row.stored.index):
        past = scene.load_row(row)
        if past is None:
            continue
        for side, now, then in (
            ("left", both.left, past.left),
            ("left", both.left, past.right),
            ("right", both.right, past.right),
        ):
            if np.array_equal(now, then):
                evidence = (
                    f"at step {scene.origin.step} the {side} side still holds the weight of step {row.stored.step}"
                )
                return Cause(NAME, 0.97, evidence, ADVICE)
    similarity = correlation(both.left, both.right)
    if similarity < 0.9:
        return None
    evidence = f"correlation {similarity:.4f} between the sides, as between the same weight at different steps"
    return Cause(NAME, 0.5, evidence, ADVICE)


def find_earlier_weights(scene: Scene, index: int) -> list[Row]:
    """Return the same weight's rows at earlier steps, latest first."""
    steps = sorted({row.stored.step for row in scene.rows if row.stored.step < scene.origin.step}, reverse=True)
    return [row for step in steps for row in scene.find_rows("parameter", index, step=step)]
