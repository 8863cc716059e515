"""The left side computes several operators as one, so a tensor between them is not rounded or does not exist.

There are three signs:

- A weight is the right side's weight times one factor for each channel. The factors are the slope of a norm on the
  right, or the left output of that weight's layer equals an output of the right side a few operators later.
- The left side's tensor equals a tensor of the right side a few operators later.
- Only the right side has a tensor just before the origin. The origin's output is an affine function of this tensor in
  every channel (a norm, a bias, a scale; perhaps with a ReLU), and the sides differ by about its rounding.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from viaduct.comparison.divergence import ArrayPair, Divergence, explained_share, fit_factor, flatten_channels, rms
from viaduct.comparison.judge import find_rounding_unit
from viaduct.comparison.records import Array, Cause, Row
from viaduct.comparison.replay import Replay, sample_outputs, solve_geometry

NAME = "operator fusion"
ADVICE = (
    "No change is needed if the difference is rounding: fused operators round once. To compare each of them, switch "
    "fusion off on the left (`viaduct migrate --fusion-switch FILE`, fusion_switch_file on an NPU; no torch.compile) "
    "and dump again; with --graph the tensors of fused operators are paired with the correct ones."
)
MAX_LATER = 4  # operators of the right side after the origin that the left's may include
MAX_DISTANCE = 3  # places between a tensor that only the right has and the origin, in the right's order of execution
ENOUGH = 0.98  # share of the difference that an explanation must remove
MAX_ROUNDINGS = 8.0  # by which the sides may differ, of a tensor that only the right side rounds
EPSILONS = (1e-5, 1e-3, 1e-4, 1e-6, 1.001e-5)  # usual epsilons of batch norms; Keras' ResNets have the last one
UNKNOWN_TERMS = 256  # assumed for the sum of an element if the weight was not dumped


def find_cause(divergence: Divergence) -> Cause | None:
    arrays = divergence.load_arrays()
    if divergence.role == "parameter" and arrays is not None:
        return explain_folded_norm(divergence, arrays)
    if divergence.role != "output" or arrays is None or not has_finite_left(arrays):
        return None
    later = find_equal_later(divergence, divergence.row, arrays)
    if later is not None:
        evidence = f"the left side's {divergence.row.op} holds what the right has after {later.op}: it seems to do both"
        return Cause(NAME, evidence, ADVICE, confidence=0.96)
    return explain_missing_rounding(divergence, arrays)


def has_finite_left(arrays: ArrayPair) -> bool:
    return arrays.left.dtype.kind == "f" and bool(np.isfinite(arrays.left).all())


def explain_folded_norm(divergence: Divergence, arrays: ArrayPair) -> Cause | None:
    """Report a norm that was folded into the weight before it."""
    if arrays.left.ndim < 2 or not has_finite_left(arrays):
        return None
    left, right = (flatten_channels(side, 0) for side in arrays)
    factor = fit_factor(left, right, 1)
    if explained_share(factor[:, None] * right, ArrayPair(left, right)) < ENOUGH or np.ptp(factor) < 1e-3:
        return None
    span = f"{factor.min():.3g} to {factor.max():.3g}"
    factors = f"the left side's weight is the right side's times {span}, a factor a channel"
    for row in divergence.find_rows("output"):
        output = divergence.load_row(row)
        later = find_equal_later(divergence, row, output) if output is not None else None
        if later is not None:
            evidence = f"{factors}, and its layer holds what the right has after {later.op}"
            return Cause(NAME, evidence, ADVICE, confidence=0.97)
    norm = find_norm(divergence, factor)
    if not norm:
        return None
    return Cause(NAME, f"{factors}, which is what {norm} on the right multiplies by", ADVICE, confidence=0.93)


def find_norm(divergence: Divergence, factor: Array) -> str:
    """Return the right side's norm with gamma / sqrt(variance + epsilon) equal to these factors; empty if none."""
    vectors: dict[str, dict[str, Array]] = {}  # by operator and name of the parameter
    for row in divergence.step_rows:
        tensor = row.pair.right
        if tensor is not None and tensor.role == "parameter" and tensor.shape == factor.shape:
            values = divergence.load_right(row)
            if values is not None:
                vectors.setdefault(tensor.op, {})[tensor.parameter] = values
    for op, parameters in vectors.items():
        variance = next((values for name, values in parameters.items() if "var" in name), None)
        gamma = next((values for name, values in parameters.items() if name in ("weight", "gamma", "scale")), None)
        if variance is None or (variance < 0).any():
            continue
        for epsilon in EPSILONS:
            slope = (1.0 if gamma is None else gamma) / np.sqrt(variance + epsilon)
            if rms(slope - factor) <= 0.01 * rms(factor):
                return op
    return ""


def find_equal_later(divergence: Divergence, origin: Row, arrays: ArrayPair) -> Row | None:
    """Return a right output, up to MAX_LATER operators after `origin`, that equals the left side of `origin`.

    `arrays` holds both sides of `origin`.
    """
    start = (origin.pair.right or origin.tensor).order
    outputs = [(row.pair.right.order, row) for row in divergence.step_rows if row.pair.right is not None]
    later: dict[str, Row] = {}  # the first output of each operator
    for order, row in sorted(outputs, key=lambda entry: entry[0]):
        if order > start and row.tensor.role == "output" and row.op != origin.op:
            later.setdefault(row.op, row)
    for row in list(later.values())[:MAX_LATER]:
        values = divergence.load_right(row)
        if values is not None and values.shape == arrays.right.shape and explained_share(values, arrays) > ENOUGH:
            return row
    return None


def explain_missing_rounding(divergence: Divergence, arrays: ArrayPair) -> Cause | None:
    """Report a tensor that the right side rounds and the left side does not have."""
    for row in find_right_only(divergence):
        hidden = divergence.load_right(row)
        if hidden is None or hidden.shape != arrays.right.shape or hidden.ndim < 2 or hidden.dtype.kind != "f":
            continue
        fit = fit_channels(hidden, arrays.right)
        if fit is None:
            continue
        epsilon, size = max(find_rounding_unit(row), find_rounding_unit(divergence.row)), rms(fit.slope * hidden)
        terms, replay = replay_layer(divergence, row)
        # In float32 the order of the sum counts as well as the rounding of its result.
        allowed = MAX_ROUNDINGS * math.sqrt(max(1, terms) if epsilon < 1e-5 else 1)
        difference = rms(arrays.left - arrays.right)
        if epsilon * size and difference <= allowed * epsilon * size:
            return describe_fusion(divergence, row, arrays, difference / (epsilon * size), replay, fit)
    return None


def find_right_only(divergence: Divergence) -> list[Row]:
    """Return right-only outputs just before the origin in the right side's order, or in its fused group; last first."""
    group = set(divergence.row.pair.right_op.split(","))
    right_only = [
        row
        for row in divergence.step_rows
        if row.pair.left is None and row.pair.right is not None and row.tensor.role == "output"
        if row.op in group or 0 <= divergence.right_order - row.tensor.order <= MAX_DISTANCE
    ]
    return sorted(right_only, key=lambda row: -row.tensor.order)


class ChannelFit(NamedTuple):
    """Slope and offset of every channel, in a shape that broadcasts over the tensor."""

    slope: Array
    offset: Array
    clipped: bool  # a ReLU follows


def fit_channels(x: Array, y: Array) -> ChannelFit | None:
    """Return the slopes and offsets that give y from x up to an error of 2 %, or None.

    After a ReLU only elements above zero are fitted; at least half of the channels must have four of them.
    """
    shape = [1, x.shape[1], *[1] * (x.ndim - 2)]
    clipped = bool(y.min() == 0 < y.max())
    x_CN, y_CN = flatten_channels(x), flatten_channels(y)
    fitted = y_CN > 0 if clipped else np.ones_like(y_CN, bool)
    count = fitted.sum(1)
    if (count < 4).mean() > 0.5:
        return None
    weight = fitted / np.maximum(count, 1)[:, None]
    mean_x, mean_y = (weight * x_CN).sum(1), (weight * y_CN).sum(1)
    centred = x_CN - mean_x[:, None]
    variance = (weight * np.square(centred)).sum(1)
    slope = (weight * centred * y_CN).sum(1) / np.where(variance > 0, variance, 1.0)
    offset = mean_y - slope * mean_x
    error = np.where(fitted, slope[:, None] * x_CN + offset[:, None] - y_CN, 0.0)
    if rms(error) > 0.02 * rms(y_CN) or np.allclose(slope, 0):
        return None
    return ChannelFit(slope.reshape(shape), offset.reshape(shape), clipped)


def replay_layer(divergence: Divergence, row: Row) -> tuple[int, Replay | None]:
    """Return the number of terms that each element of `row`'s tensor sums, and the replay of its layer, if possible."""
    source = divergence.find_first_input(row.op)
    weights = sorted(divergence.find_rows("parameter", op=row.op), key=lambda other: -math.prod(other.tensor.shape))
    x = divergence.load_right(source) if source is not None else None
    weight = divergence.load_right(weights[0]) if weights else None
    hidden = divergence.load_right(row)
    if x is None or weight is None or hidden is None or weight.ndim != 4 or x.ndim != 4 or hidden.ndim != 4:
        return (math.prod(weight.shape[1:]) if weight is not None and weight.ndim > 1 else UNKNOWN_TERMS), None
    terms = math.prod(weight.shape[1:])
    if x.shape[1] % weight.shape[1] or hidden.shape[1] != weight.shape[0]:
        return terms, None
    return terms, solve_geometry(x, weight, np.zeros(weight.shape[0]), ArrayPair(hidden, hidden))


def describe_fusion(
    divergence: Divergence, row: Row, arrays: ArrayPair, roundings: float, replay: Replay | None, fit: ChannelFit
) -> Cause:
    evidence = (
        f"{row.op} of the right side has no tensor on the left, {divergence.origin.op} is a slope and an offset of it, "
        f"and the sides differ by {roundings:.2g} roundings of it"
    )
    if replay is not None:
        unrounded = fit.slope.reshape(-1) * replay.predict() + fit.offset.reshape(-1)
        prediction = np.maximum(unrounded, 0) if fit.clipped else unrounded
        share = explained_share(prediction, sample_outputs(arrays, replay.positions))
        if share > 0.3:
            evidence += f"; computed through without rounding it, {share:.0%} of the difference is gone"
            return Cause(NAME, evidence, ADVICE, confidence=0.94)
    return Cause(NAME, evidence, ADVICE, confidence=0.85)
