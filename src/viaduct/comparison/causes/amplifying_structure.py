"""The operator is right, but makes a small difference of its inputs large: division by a small variance, cancellation.

What the right side's operator would make of the left side's inputs is worked out from the dumped numbers: a convolution
is computed again, a norm is a slope and an offset in every channel, a function of single values is read off its own
curve, a sum is a sum. If that gives the left side's output, the difference came in, and was only enlarged. A norm whose
input has a mean far above its deviation enlarges the rounding of its own mean, from equal inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from viaduct.comparison.judge import rounding
from viaduct.comparison.replay import as_convolution, replay_origin
from viaduct.comparison.rows import Cause
from viaduct.comparison.scene import Both, Scene, explained_share, rms

Array = NDArray[Any]
NAME = "amplifying structure"
ADVICE = (
    "The operator itself agrees: look at what feeds it, whose small difference it enlarges. Keep this part of the "
    "network in float32, give a division by a variance a larger epsilon, subtract before rounding; or compare behind "
    "it with wider thresholds."
)
FACTOR = 6.0  # how much larger the difference must become
ENOUGH = 0.8
STEEP = 100.0  # a mean so much larger than the deviation
EXACT = 1e-3  # relative error up to which a guess at the operator gives the right side's output


def find_cause(scene: Scene) -> Cause | None:
    """Report an operator that enlarges a difference of its inputs."""
    bad = scene.load_origin()
    inputs = [both for row in scene.find_rows("input") if (both := scene.load_row(row)) is not None]
    if scene.role != "output" or bad is None or not inputs or not all(map(is_plain, [bad, *inputs])):
        return None
    coming, made = max(map(relative_error, inputs)), relative_error(bad)
    if (words := describe_own_rounding(scene, inputs[0], bad)) and coming <= rounding(scene.row):
        return Cause(NAME, 0.95, words, ADVICE)
    if not 0 < FACTOR * coming <= made:
        return None
    share, words = max(iterate_guesses(scene, bad, inputs), default=(0.0, ""))
    if share < ENOUGH:
        return None
    evidence = (
        f"the inputs differ by {coming:.2g} of their size, the output by {made:.2g}, {made / coming:.3g} times as "
        f"much; {words} makes of the left side's inputs {share:.0%} of that difference"
    )
    return Cause(NAME, 0.93, evidence, ADVICE)


def describe_own_rounding(scene: Scene, x: Both, y: Both) -> str:
    """Describe a norm that enlarges the rounding of its own mean: it subtracts nearly all, and divides by little."""
    if x.left.shape != y.left.shape or x.left.ndim < 2:
        return ""
    x_right, y_left, y_right = (flatten_channels(side) for side in (x.right, *y))
    mean, deviation = x_right.mean(1), x_right.std(1)
    slope = fit_slope(x_right, y_right)
    if slope is None or not deviation.all():
        return ""
    unit = rounding(scene.row) * rms(slope[:, 0] * mean)  # what one rounding of the means does to the output
    size, count = rms(y_left - y_right), x_right.shape[1]
    steep = float(np.median(np.abs(mean) / deviation))
    if steep < STEEP or not 0 < size <= (16 + 2 * np.sqrt(count)) * unit:
        return ""
    return (
        f"the means of the input are {steep:.3g} times its deviations, so that one rounding of a mean becomes "
        f"{unit / rms(y_right):.2g} of the output; the sides differ by {size / unit:.2g} such roundings"
    )


def is_plain(both: Both) -> bool:
    """Return True if both sides are finite floating point."""
    return both.left.dtype.kind == both.right.dtype.kind == "f" and bool(
        np.isfinite(both.left).all() and np.isfinite(both.right).all()
    )


def relative_error(both: Both) -> float:
    """Return the RMS difference relative to the right side."""
    size = rms(both.right)
    return rms(both.left - both.right) / size if size else 0.0


def iterate_guesses(scene: Scene, bad: Both, inputs: list[Both]) -> Iterator[tuple[float, str]]:
    """Yield the share of the difference that an operator explains, applied to the left side's inputs, and its name."""
    yield explain_by_layer(scene, inputs[0]), "the layer, computed again,"
    same = [both for both in inputs if both.left.shape == bad.left.shape]
    for both in same[:1]:
        yield explain_by_slope(both, bad), "one slope a channel"
        yield explain_by_curve(both, bad), "the same function of single values"
    if len(same) > 1:
        yield explain_by_sum(same, bad), "the sum or difference of the inputs"


def explain_by_layer(scene: Scene, x: Both) -> float:
    """Return the share explained by recomputing the layer from the left side's input."""
    replay, weight = replay_origin(scene), scene.load_row(scene.find_weight())
    bad = scene.load_origin()
    if replay is None or weight is None or bad is None:
        return 0.0
    shaped = as_convolution(x.left, weight.right, bad)
    # By how much the layer's output moves: its own rounding is not the input's doing.
    moved = replay.predict(x=shaped[0]) - replay.predict() if shaped else None
    return 0.0 if moved is None else replay.explains(replay.outputs.right + moved)


def explain_by_slope(x: Both, y: Both) -> float:
    """A norm: y = s x + t in every channel, where t may move with the batch."""
    if x.left.ndim < 2:
        return 0.0
    x_left, x_right, y_left, y_right = (flatten_channels(side) for side in (*x, *y))
    slope = fit_slope(x_right, y_right)
    if slope is None:
        return 0.0
    moved = slope * (x_left - x_right)
    level = y_left.mean(1, keepdims=True)
    with_slope = y_right + moved - moved.mean(1, keepdims=True) + level - y_right.mean(1, keepdims=True)
    deviation = x_left.std(1, keepdims=True)
    slope = slope * x_right.std(1, keepdims=True) / np.where(deviation > 0, deviation, 1.0)  # by its own statistics
    with_own = slope * (x_left - x_left.mean(1, keepdims=True)) + level
    return max(explained_share(prediction, Both(y_left, y_right)) for prediction in (with_slope, with_own))


def fit_slope(x: Array, y: Array) -> Array | None:
    """Return the slope of each channel if y is an affine function of x there, else None."""
    centred = x - x.mean(1, keepdims=True)
    energy = np.square(centred).sum(1, keepdims=True)
    slope: Array = (centred * y).sum(1, keepdims=True) / np.where(energy > 0, energy, 1.0)
    fit = slope * centred + y.mean(1, keepdims=True)
    return slope if x.shape[1] >= 4 and rms(fit - y) <= 0.05 * rms(y) else None


def flatten_channels(values: Array) -> Array:
    """Return the values as (channel, everything else)."""
    return np.moveaxis(values, 1, 0).reshape(values.shape[1], -1)


def explain_by_curve(x: Both, y: Both) -> float:
    """y is a function of x alone, value by value: exp, 1 / x, a power; read off where values are dense."""
    order = np.argsort(x.right, axis=None)
    order = order[order.size // 20 : order.size - order.size // 20]
    at, values = x.right.ravel()[order], y.right.ravel()[order]
    if at.size < 64 or at[0] == at[-1]:
        return 0.0
    # Every second point must be where its neighbours say, or the output is no function of the input.
    between = np.interp(at[1::2], at[::2], values[::2])
    if rms(between - values[1::2]) > 0.02 * rms(values):
        return 0.0
    apart = max(1, at.size // 200)  # wide enough that rounding of the values plays no part in a slope
    low, high = np.maximum(np.arange(at.size) - apart, 0), np.minimum(np.arange(at.size) + apart, at.size - 1)
    run = at[high] - at[low]
    slope = (values[high] - values[low]) / np.where(run > 0, run, np.inf)
    moved = slope * (x.left.ravel()[order] - at)
    return explained_share(values + moved, Both(y.left.ravel()[order], values))


def explain_by_sum(inputs: list[Both], y: Both) -> float:
    """Two inputs added or subtracted: where they nearly cancel, their rounding is left."""
    first, second = inputs[:2]
    for sign in (1.0, -1.0):
        if rms(first.right + sign * second.right - y.right) <= EXACT * max(rms(y.right), 1e-30):
            return explained_share(first.left + sign * second.left, y)
    return 0.0
