"""The operator is correct, but amplifies a small difference of its inputs: division by a small variance, cancellation.

The right side's operator is applied to the left side's inputs: a convolution is recomputed, a norm is fitted as a slope
and an offset in every channel, an elementwise function is interpolated from its own inputs and outputs, a sum is
computed. If that gives the left side's output, the operator only amplified a difference of its inputs. A norm can also
amplify its own rounding: if the input's mean is far above its deviation, the mean is rounded by a large number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from viaduct.comparison.divergence import (
    ArrayPair,
    Divergence,
    explained_share,
    fit_line,
    flatten_channels,
    has_finite_floats,
    relative_error,
    rms,
)
from viaduct.comparison.judge import find_rounding_unit
from viaduct.comparison.records import Array, Cause
from viaduct.comparison.replay import replay_origin, reshape_to_convolution

NAME = "amplifying structure"
ADVICE = (
    "The operator itself seems to agree, but it amplifies a small difference of its inputs. Keep this part of the "
    "network in float32, give a division by a variance a larger epsilon, subtract before rounding; or use wider "
    "thresholds for the operators after it."
)
AMPLIFICATION = 6.0  # the output's difference must be this many times the input's
ENOUGH = 0.8  # share of the output's difference that the inputs must explain
LARGE_MEAN = 100.0  # a norm amplifies the rounding of a mean that is this many times the deviation
MAX_SUM_ERROR = 1e-3  # relative error up to which the sum of two inputs counts as the right side's output


def find_cause(divergence: Divergence) -> Cause | None:
    output = divergence.load_arrays()
    inputs = [arrays for row in divergence.find_rows("input") if (arrays := divergence.load_row(row)) is not None]
    if (
        divergence.role != "output"
        or output is None
        or not inputs
        or not all(map(has_finite_floats, [output, *inputs]))
    ):
        return None
    input_error, output_error = max(map(relative_error, inputs)), relative_error(output)
    is_input_equal = input_error <= find_rounding_unit(divergence.row)
    if is_input_equal and (evidence := describe_own_rounding(divergence, inputs[0], output)):
        return Cause(NAME, evidence, ADVICE, confidence=0.95)
    if not 0 < AMPLIFICATION * input_error <= output_error < math.inf:
        return None
    share, operator = max(iterate_guesses(divergence, output, inputs), default=(0.0, ""))
    if share < ENOUGH:
        return None
    evidence = (
        f"the inputs differ by {input_error:.2g} of their size, the output by {output_error:.2g}, "
        f"{output_error / input_error:.3g} times as much; {operator} explains {share:.0%} of that difference by the "
        "left side's inputs"
    )
    return Cause(NAME, evidence, ADVICE, confidence=0.93)


def describe_own_rounding(divergence: Divergence, x: ArrayPair, y: ArrayPair) -> str:
    """Describe a norm that amplifies the rounding of its mean; empty if y is no norm of x, or if y differs by more."""
    if x.left.shape != y.left.shape or x.left.ndim < 2:
        return ""
    x_right, y_left, y_right = (flatten_channels(side) for side in (x.right, *y))
    mean, deviation = x_right.mean(1), x_right.std(1)
    slope = fit_slope(x_right, y_right)
    if slope is None or not deviation.all():
        return ""
    one_rounding = find_rounding_unit(divergence.row) * rms(slope[:, 0] * mean)  # of the means, seen in the output
    difference, count = rms(y_left - y_right), x_right.shape[1]
    relative_mean = float(np.median(np.abs(mean) / deviation))
    # The rounding of a mean grows at most with the root of the number of values; 16 allows for further operations.
    if relative_mean < LARGE_MEAN or not 0 < difference <= (16 + 2 * np.sqrt(count)) * one_rounding:
        return ""
    return (
        f"the means of the input are {relative_mean:.3g} times its deviations, so one rounding of a mean becomes "
        f"{one_rounding / rms(y_right):.2g} of the output; the sides differ by {difference / one_rounding:.2g} such "
        "roundings"
    )


def iterate_guesses(divergence: Divergence, output: ArrayPair, inputs: list[ArrayPair]) -> Iterator[tuple[float, str]]:
    """Yield guesses at the operator: the share of the difference that the inputs explain then, and its description."""
    yield explain_by_layer(divergence, inputs[0], output), "the recomputed layer"
    same_shape = [arrays for arrays in inputs if arrays.left.shape == output.left.shape]
    for arrays in same_shape[:1]:  # the first input, if there is one
        yield explain_by_slope(arrays, output), "one slope for each channel"
        yield explain_by_curve(arrays, output), "the same function of single values"
    if len(same_shape) > 1:
        yield explain_by_sum(same_shape, output), "the sum or difference of the inputs"


def explain_by_layer(divergence: Divergence, x: ArrayPair, output: ArrayPair) -> float:
    """Return the share explained by recomputing the layer from the left side's input."""
    replay, weight = replay_origin(divergence), divergence.load_row(divergence.find_weight())
    if replay is None or weight is None:
        return 0.0
    convolution = reshape_to_convolution(x.left, weight.right, output)
    # The change of the layer's output does not contain the layer's own rounding.
    change = replay.predict(x=convolution[0]) - replay.predict() if convolution else None
    return 0.0 if change is None else replay.explained_share(replay.outputs.right + change)


def explain_by_slope(x: ArrayPair, y: ArrayPair) -> float:
    """Return the share explained by a norm fitted on the right side: y = s x + t in every channel.

    The better of two slopes counts: the right side's, and the slope by the left side's own deviation.
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
    return max(
        explained_share(prediction, ArrayPair(y_left, y_right)) for prediction in (with_right_slope, with_left_slope)
    )


def fit_slope(x: Array, y: Array) -> Array | None:
    """Return the slope of each channel if y is an affine function of x there, else None."""
    slope, offset = fit_line(x, y)
    return slope if x.shape[1] >= 4 and rms(slope * x + offset - y) <= 0.05 * rms(y) else None


def explain_by_curve(x: ArrayPair, y: ArrayPair) -> float:
    """Return the share explained by an elementwise function, such as exp or a power, fitted on the right side.

    A twentieth of the values at either end is left out, since few values give no reliable slope.
    """
    order = np.argsort(x.right, axis=None)
    order = order[order.size // 20 : order.size - order.size // 20]
    xs, ys = x.right.ravel()[order], y.right.ravel()[order]
    if xs.size < 64 or xs[0] == xs[-1]:
        return 0.0
    # If interpolation does not predict every second point, the output is not a function of the input.
    interpolated = np.interp(xs[1::2], xs[::2], ys[::2])
    if rms(interpolated - ys[1::2]) > 0.02 * rms(ys):
        return 0.0
    reach = max(1, xs.size // 200)  # far enough to make rounding of the values negligible
    low, high = np.maximum(np.arange(xs.size) - reach, 0), np.minimum(np.arange(xs.size) + reach, xs.size - 1)
    run = xs[high] - xs[low]
    slope = (ys[high] - ys[low]) / np.where(run > 0, run, np.inf)
    change = slope * (x.left.ravel()[order] - xs)
    return explained_share(ys + change, ArrayPair(y.left.ravel()[order], ys))


def explain_by_sum(inputs: list[ArrayPair], y: ArrayPair) -> float:
    """Return the share explained by the sum or difference of the first two inputs; 0 if y is neither."""
    first, second = inputs[:2]
    for sign in (1.0, -1.0):
        if rms(first.right + sign * second.right - y.right) <= MAX_SUM_ERROR * max(rms(y.right), 1e-30):
            return explained_share(first.left + sign * second.left, y)
    return 0.0
