"""The operator is right, but makes a small difference of its inputs large: division by a small variance, cancellation.

The right side's operator is applied to the left side's inputs, as far as the dump allows: a convolution is computed
again, a norm is fitted as a slope and an offset in every channel, an elementwise function is interpolated from its own
inputs and outputs, a sum is added up. If that gives the left side's output, the operator only enlarged a difference of
its inputs. Equal inputs can do it, too: a norm of an input whose mean is far above its deviation enlarges the rounding
of that mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from viaduct.comparison.judge import rounding_unit
from viaduct.comparison.replay import replay_origin, reshape_to_convolution
from viaduct.comparison.rows import Cause
from viaduct.comparison.scene import (
    Both,
    Scene,
    explained_share,
    flatten_channels,
    has_finite_floats,
    relative_error,
    rms,
)
from viaduct.comparison.tensors import Array

NAME = "amplifying structure"
ADVICE = (
    "The operator itself agrees: look at what feeds it, whose small difference it enlarges. Keep this part of the "
    "network in float32, give a division by a variance a larger epsilon, subtract before rounding; or compare behind "
    "it with wider thresholds."
)
FACTOR = 6.0  # how much larger the difference must become
ENOUGH = 0.8  # share of the difference that must have come in with the inputs
STEEP = 100.0  # mean divided by deviation, from which a norm enlarges the rounding of the mean
EXACT = 1e-3  # relative error up to which the sum of two inputs counts as the right side's output


def find_cause(scene: Scene) -> Cause | None:
    """Report an operator that enlarges a difference of its inputs."""
    output = scene.load_origin()
    inputs = [both for row in scene.find_rows("input") if (both := scene.load_row(row)) is not None]
    if scene.role != "output" or output is None or not inputs or not all(map(has_finite_floats, [output, *inputs])):
        return None
    input_error, output_error = max(map(relative_error, inputs)), relative_error(output)
    if (evidence := describe_own_rounding(scene, inputs[0], output)) and input_error <= rounding_unit(scene.row):
        return Cause(NAME, 0.95, evidence, ADVICE)
    if not 0 < FACTOR * input_error <= output_error < math.inf:  # an output of zeros would fit any slope and curve
        return None
    share, operator = max(iterate_guesses(scene, output, inputs), default=(0.0, ""))
    if share < ENOUGH:
        return None
    evidence = (
        f"the inputs differ by {input_error:.2g} of their size, the output by {output_error:.2g}, "
        f"{output_error / input_error:.3g} times as much; {operator} makes of the left side's inputs {share:.0%} of "
        "that difference"
    )
    return Cause(NAME, 0.93, evidence, ADVICE)


def describe_own_rounding(scene: Scene, x: Both, y: Both) -> str:
    """Describe a norm that enlarges the rounding of its own mean; empty if y is no norm of x, or differs by more."""
    if x.left.shape != y.left.shape or x.left.ndim < 2:
        return ""
    x_right, y_left, y_right = (flatten_channels(side) for side in (x.right, *y))
    mean, deviation = x_right.mean(1), x_right.std(1)
    slope = fit_slope(x_right, y_right)
    if slope is None or not deviation.all():
        return ""
    unit = rounding_unit(scene.row) * rms(slope[:, 0] * mean)  # what one rounding of the means does to the output
    size, count = rms(y_left - y_right), x_right.shape[1]
    steep = float(np.median(np.abs(mean) / deviation))
    # Rounding of a mean of `count` values grows with their root at most, with room for a few further operations.
    if steep < STEEP or not 0 < size <= (16 + 2 * np.sqrt(count)) * unit:
        return ""
    return (
        f"the means of the input are {steep:.3g} times its deviations, so that one rounding of a mean becomes "
        f"{unit / rms(y_right):.2g} of the output; the sides differ by {size / unit:.2g} such roundings"
    )


def iterate_guesses(scene: Scene, output: Both, inputs: list[Both]) -> Iterator[tuple[float, str]]:
    """Yield for each guess at the operator the share of the difference that it makes of the left inputs, and a name."""
    yield explain_by_layer(scene, inputs[0], output), "the layer, computed again,"
    same_shape = [both for both in inputs if both.left.shape == output.left.shape]
    for both in same_shape[:1]:
        yield explain_by_slope(both, output), "one slope a channel"
        yield explain_by_curve(both, output), "the same function of single values"
    if len(same_shape) > 1:
        yield explain_by_sum(same_shape, output), "the sum or difference of the inputs"


def explain_by_layer(scene: Scene, x: Both, output: Both) -> float:
    """Return the share explained by recomputing the layer from the left side's input."""
    replay, weight = replay_origin(scene), scene.load_row(scene.find_weight())
    if replay is None or weight is None:
        return 0.0
    shaped = reshape_to_convolution(x.left, weight.right, output)
    # Only the change of the layer's output counts: its own rounding does not come from the input.
    change = replay.predict(x=shaped[0]) - replay.predict() if shaped else None
    return 0.0 if change is None else replay.explained_share(replay.outputs.right + change)


def explain_by_slope(x: Both, y: Both) -> float:
    """Return the share explained by a norm fitted on the right side: y = s x + t in every channel.

    Both kinds of norm are tried, and the better one counts: with the right side's slope, and with the slope that the
    left side's own deviation gives. The mean of y is the left side's.
    """
    if x.left.ndim < 2:
        return 0.0
    x_left, x_right, y_left, y_right = (flatten_channels(side) for side in (*x, *y))
    slope = fit_slope(x_right, y_right)
    if slope is None:
        return 0.0
    change = slope * (x_left - x_right)
    mean = y_left.mean(1, keepdims=True)
    with_right_slope = y_right + change - change.mean(1, keepdims=True) + mean - y_right.mean(1, keepdims=True)
    deviation = x_left.std(1, keepdims=True)
    left_slope = slope * x_right.std(1, keepdims=True) / np.where(deviation > 0, deviation, 1.0)
    with_left_slope = left_slope * (x_left - x_left.mean(1, keepdims=True)) + mean
    return max(explained_share(prediction, Both(y_left, y_right)) for prediction in (with_right_slope, with_left_slope))


def fit_slope(x: Array, y: Array) -> Array | None:
    """Return the slope of each channel if y is an affine function of x there, else None."""
    centred = x - x.mean(1, keepdims=True)
    energy = np.square(centred).sum(1, keepdims=True)
    slope: Array = (centred * y).sum(1, keepdims=True) / np.where(energy > 0, energy, 1.0)
    fit = slope * centred + y.mean(1, keepdims=True)
    return slope if x.shape[1] >= 4 and rms(fit - y) <= 0.05 * rms(y) else None


def explain_by_curve(x: Both, y: Both) -> float:
    """Return the share explained by an elementwise function, such as exp or a power, with the slopes of the right's.

    A twentieth of the values at either end is left out: there are too few of them for a slope.
    """
    order = np.argsort(x.right, axis=None)
    order = order[order.size // 20 : order.size - order.size // 20]
    xs, ys = x.right.ravel()[order], y.right.ravel()[order]
    if xs.size < 64 or xs[0] == xs[-1]:
        return 0.0
    # Every second point must lie between its neighbours, or the output is no function of the input.
    interpolated = np.interp(xs[1::2], xs[::2], ys[::2])
    if rms(interpolated - ys[1::2]) > 0.02 * rms(ys):
        return 0.0
    reach = max(1, xs.size // 200)  # far enough that rounding of the values plays no part in a slope
    low, high = np.maximum(np.arange(xs.size) - reach, 0), np.minimum(np.arange(xs.size) + reach, xs.size - 1)
    run = xs[high] - xs[low]
    slope = (ys[high] - ys[low]) / np.where(run > 0, run, np.inf)
    change = slope * (x.left.ravel()[order] - xs)
    return explained_share(ys + change, Both(y.left.ravel()[order], ys))


def explain_by_sum(inputs: list[Both], y: Both) -> float:
    """Return the share explained by the sum or difference of the first two inputs; 0 if y is neither."""
    first, second = inputs[:2]
    for sign in (1.0, -1.0):
        if rms(first.right + sign * second.right - y.right) <= EXACT * max(rms(y.right), 1e-30):
            return explained_share(first.left + sign * second.left, y)
    return 0.0
