"""A batch norm with another epsilon, or with the statistics of the batch on one side only.

A norm is y = s x + t in every channel, with s = gamma / sqrt(variance + epsilon). Each side's s and t are fitted from
the dumped input and output. gamma^2 / s^2 is variance + epsilon. If the variances agree, it differs between the sides
by the difference of their epsilons, which is the same in all channels. Suffixes of names are axes: C is the channel, N
all others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from viaduct.comparison.divergence import ArrayPair, Divergence, explained_share, fit_line, flatten_channels, rms
from viaduct.comparison.records import Array, Cause

NAME = "batch norm epsilon"
MODE_NAME = "batch norm mode"
ADVICE = (
    "Give both norms the same epsilon: the default is 1e-5 in PyTorch, 1e-3 in Keras and TensorFlow's layers, 1e-5 in "
    "MindSpore (1e-4 in its model zoo)."
)
MODE_ADVICE = "Put both networks into the same mode: model.train() or model.eval(), training=True, is_training."
MAX_BATCH_ERROR = 5e-3  # relative error up to which a norm counts as using the statistics of the batch
MAX_USUAL_CHANGE = 0.1  # of epsilon
# Share of the difference that a change of epsilon must explain, and that a change above MAX_USUAL_CHANGE must.
ENOUGH, ENOUGH_IF_UNUSUAL = 0.7, 0.99
MAX_NORM_ERROR = 1e-3  # relative error up to which an output counts as s x + t of its input

RUNNING = re.compile("running_|moving_")  # running statistics: running_mean in PyTorch, moving_mean in TensorFlow


@dataclass(frozen=True)
class NormFit:
    """One side's norm, by channel: the fitted slope and offset, and the input's mean and variance."""

    slope: Array
    offset: Array
    mean: Array
    variance: Array


def find_cause(divergence: Divergence) -> Cause | None:
    outputs, inputs = divergence.load_arrays(), divergence.load_row(divergence.find_first_input())
    if divergence.role != "output" or outputs is None or inputs is None:
        return None
    if outputs.left.shape != inputs.left.shape or outputs.left.ndim < 2:
        return None
    x_CN, y_CN = ArrayPair(*map(flatten_channels, inputs)), ArrayPair(*map(flatten_channels, outputs))
    left, right = fit_norm(x_CN.left, y_CN.left), fit_norm(x_CN.right, y_CN.right)
    if left is None or right is None:
        return None
    gamma, beta = load_gamma_and_beta(divergence, len(left.slope))
    return explain_epsilon(left, right, gamma, beta, y_CN, x_CN.right) or explain_mode(left, right, gamma, beta)


def fit_norm(x_CN: Array, y_CN: Array) -> NormFit | None:
    """Fit y = slope x + offset in every channel; return None if it does not fit."""
    if x_CN.shape[1] < 2 or not (np.isfinite(x_CN).all() and np.isfinite(y_CN).all()):
        return None
    slope, offset = fit_line(x_CN, y_CN)
    if rms(y_CN - slope * x_CN - offset) > MAX_NORM_ERROR * max(rms(y_CN), 1e-30):
        return None
    return NormFit(slope[:, 0], offset[:, 0], x_CN.mean(1), x_CN.var(1))


def load_gamma_and_beta(divergence: Divergence, channels: int) -> tuple[Array, Array]:
    """Return the first two dumped parameters with one number for each channel, else ones and zeros."""
    rows = [row for row in divergence.find_rows("parameter") if not RUNNING.match(row.tensor.parameter)]
    loaded = [arrays.right for row in rows if (arrays := divergence.load_row(row)) is not None]
    vectors = [values for values in loaded if values.shape == (channels,)]
    gamma = vectors[0] if vectors else np.ones(channels)
    return gamma, vectors[1] if len(vectors) > 1 else np.zeros(channels)


def explain_epsilon(
    left: NormFit, right: NormFit, gamma: Array, beta: Array, outputs: ArrayPair, x_CN: Array
) -> Cause | None:
    """Report one change of epsilon that explains the difference in all channels. `x_CN`: the right side's input.

    Channels with a slope or gamma of zero are left out.
    """
    fitted = (left.slope != 0) & (right.slope != 0) & (gamma != 0)
    if not fitted.any():
        return None
    # variance + epsilon of each side, and their difference averaged over the channels
    left_sum, right_sum = (np.square(gamma[fitted] / side.slope[fitted]) for side in (left, right))
    weight = 1 / np.square(right_sum)  # the error of a fitted sum grows with it
    difference = float(np.sum(weight * (left_sum - right_sum)) / weight.sum())
    if np.any(right_sum + difference <= 0):
        return None
    # the right side's norm with the other epsilon
    slope, mean = right.slope.copy(), right.mean.copy()
    slope[fitted] = np.sign(slope[fitted]) * np.abs(gamma[fitted]) / np.sqrt(right_sum + difference)
    mean[fitted] = (beta[fitted] - right.offset[fitted]) / right.slope[fitted]
    prediction = np.where(fitted[:, None], slope[:, None] * (x_CN - mean[:, None]) + beta[:, None], outputs.right)
    share = explained_share(prediction, outputs)
    if share < (ENOUGH if abs(difference) <= MAX_USUAL_CHANGE else ENOUGH_IF_UNUSUAL):
        return None
    epsilon = float(np.sum(weight * (right_sum - right.variance[fitted])) / weight.sum())  # of the right side
    channels = f"all {len(fitted)}" if fitted.all() else f"{fitted.sum()} of {len(fitted)}"
    change = f"one change of epsilon by {difference:+.2e} in {channels} channels"
    evidence = f"{change} explains {share:.0%} of the difference"
    if 0 < epsilon < 1 and epsilon + difference > 0:
        values = f"{epsilon + difference:.1e} on the left, {epsilon:.1e} on the right"
        evidence += f"; solved from the batch's variance: {values}"
    return Cause(NAME, evidence, ADVICE, confidence=0.6 + 0.38 * share)


def explain_mode(left: NormFit, right: NormFit, gamma: Array, beta: Array) -> Cause | None:
    """Report that one side normalises with the statistics of the batch and the other does not."""
    errors = [float(np.median(measure_deviation_from_batch(side, gamma, beta))) for side in (left, right)]
    by_batch = [error < MAX_BATCH_ERROR for error in errors]
    if by_batch[0] == by_batch[1]:
        return None
    batch, running = ("left", "right") if by_batch[0] else ("right", "left")
    evidence = f"the {batch} side normalises by the batch's own mean and variance, the {running} side does not"
    return Cause(MODE_NAME, evidence, MODE_ADVICE, confidence=0.85)


def measure_deviation_from_batch(side: NormFit, gamma: Array, beta: Array) -> Array:
    """Return, by channel, how far slope and mean output are from a norm's with the batch's own statistics."""
    scale = np.where(gamma != 0, np.abs(gamma), 1.0)
    slope = np.abs(np.abs(side.slope) * np.sqrt(side.variance) / scale - 1)
    mean_output = np.abs(side.slope * side.mean + side.offset - beta) / scale
    larger: Array = np.maximum(slope, mean_output)
    return larger
