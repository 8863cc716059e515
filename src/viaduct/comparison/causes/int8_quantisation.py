"""One side computed in 8-bit integers, or stored its result in them.

Either the left side has at most 256 equally spaced values (in all, or in each channel), each within a few steps of the
right side's. Or the layer, recomputed from quantised input and weight, gives the left side's output.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from viaduct.comparison.divergence import ArrayPair, Divergence, flatten_channels, rms
from viaduct.comparison.grids import HALF_FORMATS, UniformGrid, find_uniform_grid, is_one_rounding
from viaduct.comparison.records import Array, Cause
from viaduct.comparison.replay import Replay, replay_origin

NAME = "int8 quantisation"
ADVICE = (
    "If 8 bits are meant, calibrate again with more images, quantise weights by channel, and keep the first and last "
    "layer in floating point; compare with thresholds for it. If not, switch quantisation off for this operator."
)
MAX_LEVELS = 256
MAX_STEPS_APART = 3.0  # RMS distance of the sides; sums of quantised numbers are off by more than one rounding
ENOUGH = 0.7  # share of the difference that a replay must explain
MIN_VALUES = 32  # of a tensor or channel; fewer may be equally spaced by chance


def find_cause(divergence: Divergence) -> Cause | None:
    arrays = divergence.load_float_arrays()
    if arrays is None or not np.isfinite(arrays.left).all():
        return None
    if any(is_one_rounding(arrays.left, arrays.right, grid) for grid in HALF_FORMATS):
        return None  # half-precision numbers of a narrow range are equally spaced too
    if evidence := describe_levels(arrays, 0 if divergence.is_weight else 1):
        return Cause(NAME, evidence, ADVICE, confidence=0.92)
    replay = replay_origin(divergence)
    return None if replay is None else explain_by_replay(replay)


def describe_levels(arrays: ArrayPair, axis: int) -> str:
    """Describe the equally spaced values of the left side, in all or in each channel; empty if there are none.

    `axis`: the axis of the channels.
    """
    grid = find_grid(arrays.left.ravel(), arrays.right.ravel())
    if grid is not None:
        return (
            f"every value on the left is one of {grid.levels} levels, {grid.step:.4g} apart; the sides are "
            f"{rms(arrays.left - arrays.right) / grid.step:.2g} of these steps apart (RMS; rounding alone gives 0.29)"
        )
    if arrays.left.ndim < 2 or arrays.left.shape[axis] < 2:
        return ""
    left, right = (flatten_channels(side, axis) for side in arrays)
    grids = [find_grid(*channel) for channel in zip(left, right, strict=True)]
    steps = [grid.step for grid in grids if grid is not None]
    if len(steps) < max(2, 0.9 * len(grids)):
        return ""
    return (
        f"in {len(steps)} of {len(grids)} channels every value on the left is one of at most {MAX_LEVELS} levels, "
        f"{min(steps):.4g} to {max(steps):.4g} apart"
    )


def find_grid(left: Array, right: Array) -> UniformGrid | None:
    """Return the grid of at most MAX_LEVELS values on which the left side lies and the right does not, or None."""
    grid = find_uniform_grid(left) if left.size >= MIN_VALUES else None
    if grid is None or grid.levels > MAX_LEVELS or rms(left - right) > MAX_STEPS_APART * grid.step:
        return None
    differs = right[right != left]  # after a ReLU half of the values are 0 on both sides
    return grid if differs.size and float(np.mean(grid.find_members(differs))) < 0.5 else None


def explain_by_replay(replay: Replay) -> Cause | None:
    """Report quantised inputs or weights that give the left side's output."""
    for operands, x, weight in iterate_quantised(replay):
        share = replay.explained_share(replay.predict(x=x, weight=weight))
        if share > ENOUGH:
            evidence = f"computed again with {operands} in 8 bits, {share:.0%} of the difference is gone"
            return Cause(NAME, evidence, ADVICE, confidence=0.8 + 0.1 * share)
    return None


def iterate_quantised(replay: Replay) -> Iterator[tuple[str, Array, Array]]:
    """Yield a description, the input and the weight for each usual way to quantise them."""
    inputs = {
        "": replay.x_NCHW,
        "the input": quantise_symmetric(replay.x_NCHW),
        "the input, shifted,": quantise_shifted(replay.x_NCHW),
    }
    weights = {
        "": replay.weight_OIHW,
        "the weight": quantise_symmetric(replay.weight_OIHW),
        "the weight by channel": quantise_symmetric(replay.weight_OIHW, (1, 2, 3)),
    }
    for of_input, x in inputs.items():
        for of_weight, weight in weights.items():
            if of_input or of_weight:
                yield " and ".join(filter(None, (of_input, of_weight))), x, weight


def quantise_symmetric(values: Array, axes: tuple[int, ...] | None = None) -> Array:
    """Round to -127 … 127 steps around zero."""
    scale = np.max(np.abs(values), axis=axes, keepdims=True) / 127
    scale = np.where(scale > 0, scale, 1.0)
    rounded: Array = np.clip(np.rint(values / scale), -127, 127) * scale
    return rounded


def quantise_shifted(values: Array) -> Array:
    """Round to 255 steps from the smallest to the largest value; zero is one of them."""
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    scale = (high - low) / 255 or 1.0
    zero = np.rint(-low / scale)
    rounded: Array = (np.clip(np.rint(values / scale) + zero, 0, 255) - zero) * scale
    return rounded
