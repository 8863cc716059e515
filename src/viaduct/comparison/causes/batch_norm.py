"""A batch norm with another epsilon, or with running instead of batch statistics.

A norm is y = s x + t in every channel, with s = gamma / sqrt(variance + epsilon). Both s are fitted from the dumped
input and output; the difference of gamma^2 / s^2 between the sides is then the difference of the two epsilons, the same
in all channels, whatever the variance is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from viaduct.comparison.rows import Cause
from viaduct.comparison.scene import Both, Scene, explained_share, rms

Array = NDArray[Any]
NAME = "batch norm epsilon"
MODE = "batch norm mode"
ADVICE = (
    "Give both norms the same epsilon: PyTorch's default is 1e-5, that of Keras and TensorFlow's layers 1e-3, "
    "MindSpore's 1e-5 (1e-4 in its model zoo)."
)
MODE_ADVICE = "Put both networks into the same mode: model.train() or model.eval(), training=True, is_training."
OWN = 5e-3  # relative error up to which a norm goes by the batch's own statistics
PLAUSIBLE = 0.1  # a larger epsilon is hardly ever meant: it must explain nearly all
LINEAR = 1e-3  # relative error up to which an output counts as s x + t of its input


@dataclass(frozen=True)
class Affine:
    """One side's slope and offset in every channel, with its mean and variance of the input."""

    slope: Array
    offset: Array
    mean: Array
    variance: Array


def find_cause(scene: Scene) -> Cause | None:
    """Report a batch norm with another epsilon or mode."""
    bad, source = scene.load_origin(), next(iter(scene.find_rows("input", 0)), None)
    inputs = scene.load_row(source)
    if (
        scene.role != "output"
        or bad is None
        or inputs is None
        or bad.left.shape != inputs.left.shape
        or bad.left.ndim < 2
    ):
        return None
    left, right = fit_affine(inputs.left, bad.left), fit_affine(inputs.right, bad.right)
    if left is None or right is None:
        return None
    gamma, beta = parameters(scene, len(left.slope))
    outputs = Both(flatten_channels(bad.left), flatten_channels(bad.right))
    return explain_epsilon(left, right, gamma, beta, outputs, flatten_channels(inputs.right)) or explain_mode(
        left, right, gamma, beta
    )


def flatten_channels(values: Array) -> Array:
    """Return the values as (channel, everything else)."""
    return np.moveaxis(values, 1, 0).reshape(values.shape[1], -1)


def fit_affine(x: Array, y: Array) -> Affine | None:
    """y = slope x + offset in every channel; None if it is not."""
    x_CN, y_CN = flatten_channels(x), flatten_channels(y)
    if x_CN.shape[1] < 2 or not (np.isfinite(x_CN).all() and np.isfinite(y_CN).all()):
        return None
    mean, centre = x_CN.mean(1), y_CN.mean(1)
    deviation = x_CN - mean[:, None]
    variance = np.mean(np.square(deviation), 1)
    slope = np.mean(deviation * (y_CN - centre[:, None]), 1) / np.where(variance > 0, variance, 1.0)
    offset = centre - slope * mean
    residual = rms(y_CN - slope[:, None] * x_CN - offset[:, None])
    return Affine(slope, offset, mean, variance) if residual <= LINEAR * max(rms(y_CN), 1e-30) else None


def parameters(scene: Scene, channels: int) -> tuple[Array, Array]:
    """gamma and beta, where they were dumped: the first and second parameter with one number a channel."""
    found = [both.right for row in scene.find_rows("parameter") if (both := scene.load_row(row)) is not None]
    vectors = [values for values in found if values.shape == (channels,)]
    gamma = vectors[0] if vectors else np.ones(channels)
    return gamma, vectors[1] if len(vectors) > 1 else np.zeros(channels)


def explain_epsilon(left: Affine, right: Affine, gamma: Array, beta: Array, outputs: Both, x_CN: Array) -> Cause | None:
    """Report a single change of epsilon that explains the difference in all channels."""
    used = (left.slope != 0) & (right.slope != 0) & (gamma != 0)
    if not used.any():
        return None
    spread_left, spread_right = (np.square(gamma[used] / side.slope[used]) for side in (left, right))
    weight = 1 / np.square(spread_right)  # the fit is as exact as the spread is small
    difference = float(np.sum(weight * (spread_left - spread_right)) / weight.sum())
    if np.any(spread_right + difference <= 0):
        return None
    slope, mean = right.slope.copy(), right.mean.copy()
    slope[used] = np.sign(slope[used]) * np.abs(gamma[used]) / np.sqrt(spread_right + difference)
    mean[used] = (beta[used] - right.offset[used]) / right.slope[used]
    prediction = np.where(used[:, None], slope[:, None] * (x_CN - mean[:, None]) + beta[:, None], outputs.right)
    share = explained_share(prediction, outputs)
    if share < (0.7 if abs(difference) <= PLAUSIBLE else 0.99):
        return None
    own = float(np.sum(weight * (spread_right - right.variance[used])) / weight.sum())
    change = f"one change of epsilon by {difference:+.2e} in all {used.sum()} channels"
    evidence = f"{change} explains {share:.0%} of the difference"
    solved = f"; solved from the batch's variance: {own + difference:.1e} on the left, {own:.1e} on the right"
    return Cause(NAME, 0.6 + 0.38 * share, evidence + (solved if 0 < own < 1 and own + difference > 0 else ""), ADVICE)


def explain_mode(left: Affine, right: Affine, gamma: Array, beta: Array) -> Cause | None:
    """Report one side normalising with batch statistics and the other with running statistics."""
    by_batch = [bool(np.median(deviation_from_batch(side, gamma, beta)) < OWN) for side in (left, right)]
    if by_batch[0] == by_batch[1]:
        return None
    which = ("left", "right") if by_batch[0] else ("right", "left")
    evidence = f"the {which[0]} side normalises by the batch's own mean and variance, the {which[1]} side does not"
    return Cause(MODE, 0.85, evidence, MODE_ADVICE)


def deviation_from_batch(side: Affine, gamma: Array, beta: Array) -> Array:
    """Return how far each channel's slope and centre are from the batch's own statistics."""
    scale = np.where(gamma != 0, np.abs(gamma), 1.0)
    slope = np.abs(np.abs(side.slope) * np.sqrt(side.variance) / scale - 1)
    centre = np.abs(side.slope * side.mean + side.offset - beta) / scale
    larger: Array = np.maximum(slope, centre)
    return larger
