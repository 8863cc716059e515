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
from viaduct.comparison.scene import Both, Scene, explained, rms

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


def look(scene: Scene) -> Cause | None:
    bad, source = scene.bad(), next(iter(scene.of("input", 0)), None)
    inputs = scene.both(source)
    if (
        scene.role != "output"
        or bad is None
        or inputs is None
        or bad.left.shape != inputs.left.shape
        or bad.left.ndim < 2
    ):
        return None
    left, right = fitted(inputs.left, bad.left), fitted(inputs.right, bad.right)
    if left is None or right is None:
        return None
    gamma, beta = parameters(scene, len(left.slope))
    outputs = Both(flat(bad.left), flat(bad.right))
    return epsilon(left, right, gamma, beta, outputs, flat(inputs.right)) or mode(left, right, gamma, beta)


def flat(values: Array) -> Array:
    """(channel, all the rest)"""
    return np.moveaxis(values, 1, 0).reshape(values.shape[1], -1)


def fitted(x: Array, y: Array) -> Affine | None:
    """y = slope x + offset in every channel; None if it is not."""
    x_CN, y_CN = flat(x), flat(y)
    if x_CN.shape[1] < 2 or not (np.isfinite(x_CN).all() and np.isfinite(y_CN).all()):
        return None
    mean, centre = x_CN.mean(1), y_CN.mean(1)
    deviation = x_CN - mean[:, None]
    variance = np.mean(np.square(deviation), 1)
    slope = np.mean(deviation * (y_CN - centre[:, None]), 1) / np.where(variance > 0, variance, 1.0)
    offset = centre - slope * mean
    rest = rms(y_CN - slope[:, None] * x_CN - offset[:, None])
    return Affine(slope, offset, mean, variance) if rest <= LINEAR * max(rms(y_CN), 1e-30) else None


def parameters(scene: Scene, channels: int) -> tuple[Array, Array]:
    """gamma and beta, where they were dumped: the first and second parameter with one number a channel."""
    found = [both.right for row in scene.of("parameter") if (both := scene.both(row)) is not None]
    vectors = [values for values in found if values.shape == (channels,)]
    gamma = vectors[0] if vectors else np.ones(channels)
    return gamma, vectors[1] if len(vectors) > 1 else np.zeros(channels)


def epsilon(left: Affine, right: Affine, gamma: Array, beta: Array, outputs: Both, x_CN: Array) -> Cause | None:
    """One difference of epsilon for all channels that explains the left side."""
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
    share = explained(prediction, outputs)
    if share < (0.7 if abs(difference) <= PLAUSIBLE else 0.99):
        return None
    own = float(np.sum(weight * (spread_right - right.variance[used])) / weight.sum())
    change = f"one change of epsilon by {difference:+.2e} in all {used.sum()} channels"
    evidence = f"{change} explains {share:.0%} of the difference"
    solved = f"; solved from the batch's variance: {own + difference:.1e} on the left, {own:.1e} on the right"
    return Cause(NAME, 0.6 + 0.38 * share, evidence + (solved if 0 < own < 1 and own + difference > 0 else ""), ADVICE)


def mode(left: Affine, right: Affine, gamma: Array, beta: Array) -> Cause | None:
    """One side normalises by the batch's own mean and variance, the other by something else."""
    by_batch = [bool(np.median(strangeness(side, gamma, beta)) < OWN) for side in (left, right)]
    if by_batch[0] == by_batch[1]:
        return None
    which = ("left", "right") if by_batch[0] else ("right", "left")
    evidence = f"the {which[0]} side normalises by the batch's own mean and variance, the {which[1]} side does not"
    return Cause(MODE, 0.85, evidence, MODE_ADVICE)


def strangeness(side: Affine, gamma: Array, beta: Array) -> Array:
    """How far slope and centre of each channel are from what the batch's own statistics give, relatively."""
    scale = np.where(gamma != 0, np.abs(gamma), 1.0)
    slope = np.abs(np.abs(side.slope) * np.sqrt(side.variance) / scale - 1)
    centre = np.abs(side.slope * side.mean + side.offset - beta) / scale
    larger: Array = np.maximum(slope, centre)
    return larger
