"""The same numbers with their axes in another order: NHWC for NCHW, HWIO for OIHW, a transposed or mirrored kernel.

Every order of up to five axes is tried on the tensor itself and on the weight of a layer that can be recomputed. The
transposed numbers either keep their new shape or were flattened and read in the old one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from viaduct.comparison.divergence import ArrayPair, Divergence, explained_share
from viaduct.comparison.records import Array, Cause
from viaduct.comparison.replay import Replay, replay_origin

NAME = "wrong layout"
ADVICE = (
    "Check each conversion of this tensor: a weight import that skips a transpose (TensorFlow keeps HWIO, PyTorch "
    "OIHW), a reshape in place of a permute, or a channels-last flag on one side only."
)
SAMPLE = 4096  # elements on which an order of axes is tried before the whole tensor
ENOUGH = 0.9  # share of the difference that the other layout must explain
# Letters of the axes, by their number and whether the tensor is a weight.
AXES = {(4, False): "NCHW", (4, True): "OIHW", (2, False): "NC", (2, True): "OI"}


def find_cause(divergence: Divergence) -> Cause | None:
    arrays = divergence.load_arrays()
    if arrays is None:
        return None
    if arrangement := find_arrangement(arrays, divergence.is_weight):
        explained = f"which explains more than {ENOUGH:.0%} of the difference"
        return Cause(NAME, f"the left side is the right side {arrangement}, {explained}", ADVICE, confidence=0.97)
    replay = replay_origin(divergence)
    return None if replay is None else explain_weight_layout(replay)


def find_arrangement(arrays: ArrayPair, is_weight: bool) -> str | None:
    """Describe the change of layout that turns the right side into the left; None if there is none."""
    indices = np.random.default_rng(2).integers(0, arrays.left.size, min(SAMPLE, arrays.left.size))
    sample = ArrayPair(arrays.left.reshape(-1)[indices], arrays.right.reshape(-1)[indices])
    # `view` may have another shape than the left side: elements correspond in memory order.
    ndim = arrays.right.ndim
    names = AXES.get((ndim, is_weight), "ABCDEFGH"[:ndim] + "?" * (ndim - 8))
    for view, description in iterate_arrangements(arrays.right, names):
        prediction = view[np.unravel_index(indices, view.shape)]
        is_likely = explained_share(prediction, sample) > ENOUGH
        if is_likely and explained_share(view.reshape(arrays.left.shape), arrays) > ENOUGH:
            return description
    return None


def explain_weight_layout(replay: Replay) -> Cause | None:
    """Report a change of the weight's layout that gives the left side's output."""
    best, description = 0.0, ""
    for view, arrangement in iterate_arrangements(replay.weight_OIHW, "OIHW"):
        weight = np.ascontiguousarray(view).reshape(replay.weight_OIHW.shape)
        share = replay.explained_share(replay.predict(weight=weight))
        if share > best:
            best, description = share, arrangement
    if best < ENOUGH:
        return None
    evidence = f"computed again with the weight {description}, {best:.0%} of the difference is gone"
    return Cause(NAME, evidence, ADVICE, confidence=0.97 * best)


def iterate_arrangements(values: Array, names: str) -> Iterator[tuple[Array, str]]:
    """Yield views with every other axis order, and mirrored, each with its description."""
    long_axes = [axis for axis in range(values.ndim) if values.shape[axis] > 1]
    for order in itertools.permutations(range(values.ndim)) if values.ndim <= 5 else ():
        if [axis for axis in order if axis in long_axes] != long_axes:  # moving axes of length 1 changes nothing
            view = values.transpose(order)
            change = "transposed" if view.shape == values.shape else "flattened"
            yield view, f"{change} as {''.join(names[axis] for axis in order)} instead of {names}"
    spatial = [axis for axis in long_axes if axis >= 2]
    for count in range(1, len(spatial) + 1):
        for axes in itertools.combinations(spatial, count):
            yield np.flip(values, axes), f"mirrored along {', '.join(names[axis] for axis in axes)}"
