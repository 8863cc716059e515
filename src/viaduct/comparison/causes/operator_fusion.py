"""The left side computes several operators as one, so that a tensor between them is never rounded, or never exists.

Three signs. A weight is the right side's times one factor a channel: the slope of the norm that follows on the right,
or its layer holds what the right has behind that norm. The left side's tensor is the one that the right has a few
operators later: the names are the same, what they hold is not. Or the right side has a tensor just before that the left
has not, its output is a slope and an offset of it in every channel (a norm, a bias, a scale; a ReLU behind it), and the
sides differ by what rounding that tensor costs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from viaduct.comparison.judge import rounding
from viaduct.comparison.replay import solve_geometry
from viaduct.comparison.rows import Cause, Row
from viaduct.comparison.scene import Both, Scene, explained_share, rms

Array = NDArray[Any]
NAME = "operator fusion"
ADVICE = (
    "Nothing to mend if the difference is rounding: fused operators round once. To see them apart, switch fusion off "
    "on the left (`viaduct migrate --fusion-switch FILE`, fusion_switch_file on an NPU; no torch.compile) and dump "
    "again; with --graph the tensors of fused operators are put beside the right ones."
)
LATER = 4  # operators of the right side that may have been drawn into the left's
NEAR = 3  # places in the order between a tensor that only the right has and the origin
SAME = 0.98
ROUNDINGS = 8.0


def find_cause(scene: Scene) -> Cause | None:
    """Report operators that the left side computes as one."""
    both = scene.load_origin()
    if scene.role == "parameter" and both is not None:
        return explain_folded_norm(scene, both)
    if scene.role != "output" or both is None or both.left.dtype.kind != "f" or not np.isfinite(both.left).all():
        return None
    later = find_later(scene, scene.row, both)
    if later is not None:
        evidence = f"the left side's {scene.row.op} holds what the right has after {later.op}: it does both"
        return Cause(NAME, 0.96, evidence, ADVICE)
    return explain_missing_rounding(scene, both)


def explain_folded_norm(scene: Scene, both: Both) -> Cause | None:
    """Report a norm that was folded into the weight before it."""
    if both.left.ndim < 2 or both.left.dtype.kind != "f" or not np.isfinite(both.left).all():
        return None
    shape = (-1, *[1] * (both.left.ndim - 1))
    energy = np.square(both.right).reshape(len(both.right), -1).sum(1)
    factor = (both.left * both.right).reshape(len(both.right), -1).sum(1) / np.where(energy > 0, energy, 1.0)
    if explained_share(factor.reshape(shape) * both.right, both) < SAME or np.ptp(factor) < 1e-3:
        return None
    span = (
        f"the left side's weight is the right side's times {factor.min():.3g} to {factor.max():.3g}, a factor a channel"
    )
    for row in scene.find_rows("output"):
        output = scene.load_row(row)
        later = find_later(scene, row, output) if output is not None else None
        if later is not None:
            return Cause(NAME, 0.97, f"{span}, and its layer holds what the right has after {later.op}", ADVICE)
    norm = find_norm(scene, factor)
    return Cause(NAME, 0.93, f"{span}, which is what {norm} on the right multiplies by", ADVICE) if norm else None


def find_norm(scene: Scene, factor: Array) -> str:
    """Return the norm of the right side whose gamma / sqrt(variance + epsilon) these factors are."""
    vectors: dict[str, dict[str, Array]] = {}
    for row in scene.rows:
        stored = row.pair.right
        if stored is not None and stored.role == "parameter" and stored.shape == factor.shape:
            values = scene.load_golden(row)
            if values is not None and (stored.step, stored.rank) == (scene.origin.step, scene.origin.rank):
                vectors.setdefault(stored.op, {})[stored.parameter] = values
    for op, named in vectors.items():
        variance = next((values for name, values in named.items() if "var" in name), None)
        gamma = next((values for name, values in named.items() if name in ("weight", "gamma", "scale")), None)
        if variance is None or (variance < 0).any():
            continue
        for epsilon in (1e-5, 1e-3, 1e-4, 1e-6, 1.001e-5):
            slope = (1.0 if gamma is None else gamma) / np.sqrt(variance + epsilon)
            if rms(slope - factor) <= 0.01 * rms(factor):
                return op
    return ""


def find_later(scene: Scene, origin: Row, both: Both) -> Row | None:
    """Return the row of the right, a few operators later, whose tensor the left has already here."""
    here, later = origin.stored, dict[str, Row]()
    for row in sorted(scene.rows, key=lambda row: row.stored.order):
        stored = row.pair.right
        behind = stored is not None and stored.role == "output" and row.stored.order > here.order
        if behind and (row.stored.step, row.stored.rank) == (here.step, here.rank) and row.op != here.op:
            later.setdefault(row.op, row)
    for row in list(later.values())[:LATER]:
        values = scene.load_golden(row)
        if values is not None and values.shape == both.right.shape and explained_share(values, both) > SAME:
            return row
    return None


def explain_missing_rounding(scene: Scene, both: Both) -> Cause | None:
    """Report a tensor that the right side rounds and the left side does not have."""
    for row in find_right_only(scene):
        between = scene.load_golden(row)
        if between is None or between.shape != both.right.shape or between.ndim < 2 or between.dtype.kind != "f":
            continue
        affine = fit_channels(between, both.right)
        if affine is None:
            continue
        slope, offset, clipped = affine
        unit = max(rounding(row), rounding(scene.row)) * rms(slope * between)
        terms, exact = replay_layer(scene, row)
        size = rms(both.left - both.right)
        if unit and size <= ROUNDINGS * unit * math.sqrt(max(1, terms) if unit < 1e-5 * rms(slope * between) else 1):
            return describe_fusion(scene, row, both, size / unit, exact, (slope, offset, clipped))
    return None


def find_right_only(scene: Scene) -> list[Row]:
    """Return right-only outputs just before the origin or in its fused group, nearest first."""
    here, group = scene.row.stored, set(scene.row.pair.right_op.split(","))
    found = [
        row
        for row in scene.rows
        if row.pair.left is None and row.pair.right is not None and row.stored.role == "output"
        if (row.stored.step, row.stored.rank) == (here.step, here.rank)
        if row.op in group or 0 <= here.order - row.stored.order <= NEAR
    ]
    return sorted(found, key=lambda row: -row.stored.order)


def fit_channels(x: Array, y: Array) -> tuple[Array, Array, bool] | None:
    """Return slope, offset and whether a ReLU follows, if they give y from x; else None."""
    shape = [1, x.shape[1], *[1] * (x.ndim - 2)]
    clipped = bool(y.min() == 0 < y.max())
    x_CN, y_CN = (np.moveaxis(side, 1, 0).reshape(side.shape[1], -1) for side in (x, y))
    seen = y_CN > 0 if clipped else np.ones_like(y_CN, bool)
    count = seen.sum(1)
    if (count < 4).mean() > 0.5:
        return None
    weight = seen / np.maximum(count, 1)[:, None]
    mean_x, mean_y = (weight * x_CN).sum(1), (weight * y_CN).sum(1)
    centred = x_CN - mean_x[:, None]
    energy = (weight * np.square(centred)).sum(1)
    slope = (weight * centred * y_CN).sum(1) / np.where(energy > 0, energy, 1.0)
    offset = mean_y - slope * mean_x
    error = np.where(seen, slope[:, None] * x_CN + offset[:, None] - y_CN, 0.0)
    if rms(error) > 0.02 * rms(y_CN) or np.allclose(slope, 0):
        return None
    return slope.reshape(shape), offset.reshape(shape), clipped


def replay_layer(scene: Scene, row: Row) -> tuple[int, Any]:
    """Return the number of terms in a sum of the tensor, and its layer's replay where possible."""
    source = next(iter(scene.find_rows("input", 0, op=row.op)), None)
    weights = sorted(scene.find_rows("parameter", op=row.op), key=lambda other: -math.prod(other.stored.shape))
    x = scene.load_golden(source) if source is not None else None
    weight = scene.load_golden(weights[0]) if weights else None
    between = scene.load_golden(row)
    if x is None or weight is None or between is None or weight.ndim != 4 or x.ndim != 4 or between.ndim != 4:
        return (math.prod(weight.shape[1:]) if weight is not None and weight.ndim > 1 else 256), None
    terms = math.prod(weight.shape[1:])
    if x.shape[1] % weight.shape[1] or between.shape[1] != weight.shape[0]:
        return terms, None
    return terms, solve_geometry(x, weight, np.zeros(weight.shape[0]), Both(between, between))


def describe_fusion(
    scene: Scene, row: Row, both: Both, roundings: float, replay: Any, affine: tuple[Array, Array, bool]
) -> Cause:
    """Return the cause, with the evidence of a replay where there is one."""
    slope, offset, clipped = affine
    words = (
        f"{row.op} of the right side has no tensor on the left, {scene.origin.op} is a slope and an offset of it, and "
        f"the sides differ by {roundings:.2g} roundings of it"
    )
    if replay is not None:
        raw = slope.reshape(-1) * replay.predict() + offset.reshape(-1)
        prediction = np.maximum(raw, 0) if clipped else raw
        there = Both(*(side[replay.positions[0], :, replay.positions[1], replay.positions[2]] for side in both))
        share = explained_share(prediction, there)
        if share > 0.3:
            words += f"; computed through without rounding it, {share:.0%} of the difference is gone"
            return Cause(NAME, 0.94, words, ADVICE)
    return Cause(NAME, 0.85, words, ADVICE)
