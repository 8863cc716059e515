"""Channels in another order: RGB for BGR in the input, or reordered outputs of a layer."""

from __future__ import annotations

from viaduct.comparison.divergence import ENOUGH_BY_ORDER, Divergence, describe_order, find_order
from viaduct.comparison.records import Cause
from viaduct.comparison.replay import Replay, replay_origin

NAME = "swapped channels"
ADVICE = (
    "Check the code that sets the order of channels here: the decoder (OpenCV reads BGR, PIL and TensorFlow RGB), the "
    "order of operands of a concatenation, a channel shuffle, or the map of weight names."
)
ENOUGH = 0.9  # share of the difference that reversed input channels must explain


def find_cause(divergence: Divergence) -> Cause | None:
    arrays = divergence.load_arrays()
    if arrays is None or arrays.left.dtype.kind not in "fiu":
        return None
    for axis in find_channel_axes(arrays.left.shape, divergence.is_weight):
        order = find_order(arrays, axis)
        if order is not None:
            slices = f"slices along axis {axis} reordered: {describe_order(order)}"
            extra = " (RGB against BGR)" if list(order) == [2, 1, 0] else ""
            explained = f"which explains at least {ENOUGH_BY_ORDER:.0%} of the difference"
            evidence = f"the left side is the right side with its {slices}{extra}, {explained}"
            return Cause(NAME, evidence, ADVICE, confidence=0.96)
    replay = replay_origin(divergence)
    return None if replay is None else explain_reversed_input(replay)


def find_channel_axes(shape: tuple[int, ...], is_weight: bool) -> list[int]:
    """Return the axes that may hold channels: 0 and 1 of a weight; else 1, and the last if it is short (NHWC)."""
    if is_weight:
        return list(range(min(2, len(shape))))
    last = [len(shape) - 1] if len(shape) > 2 and shape[-1] <= 4 else []
    return [axis for axis in (1, *last) if axis < len(shape)]


def explain_reversed_input(replay: Replay) -> Cause | None:
    """Report a layer that read its input's channels in reverse."""
    if replay.x_NCHW.shape[1] < 2:
        return None
    share = replay.explained_share(replay.predict(x=replay.x_NCHW[:, ::-1]))
    if share < ENOUGH:
        return None
    evidence = f"with the input's channels reversed, {share:.0%} of the difference is gone"
    return Cause(NAME, evidence, ADVICE, confidence=0.95 * share)
