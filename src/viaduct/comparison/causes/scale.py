"""The left side is the right side times one factor, as if a sum replaced a mean, or an affine function by channel."""

from __future__ import annotations

from viaduct.comparison.divergence import (
    ArrayPair,
    Divergence,
    explained_share,
    fit_factor,
    fit_line,
    flatten_channels,
    has_finite_floats,
)
from viaduct.comparison.records import Array, Cause

NAME = "wrong scale"
ADVICE = {
    "input": "Compare the preprocessing: division by 255, mean and standard deviation, and in which order they come.",
    "gradient": "Compare sum and mean: over the batch, over the ranks; and see that the loss scale is divided out.",
    "parameter": "Compare how the weight is drawn or loaded: fan in against fan out, a missing gain.",
    "update": "Compare learning rate, weight decay and the optimizer's bias correction at this step.",
    "output": "Compare the operator's constants: a mean in place of a sum, a temperature, a missing division.",
}
ENOUGH = 0.98  # share of the difference that the factors must explain
MIN_VALUES = 8  # number of values of a channel; fewer may lie on a line by chance


def find_cause(divergence: Divergence) -> Cause | None:
    arrays = divergence.load_float_arrays()
    if arrays is None or not has_finite_floats(arrays):
        return None
    advice = ADVICE["gradient" if divergence.role in ("grad_input", "grad_output") else divergence.role]
    factor = float(fit_factor(arrays.left, arrays.right))
    if factor and (share := explained_share(factor * arrays.right, arrays)) > ENOUGH:
        evidence = f"the left side is {factor:.6g} times the right side, which explains {share:.1%} of the difference"
        return Cause(NAME, evidence, advice, confidence=0.9)
    return explain_by_channel(arrays, advice) if arrays.left.ndim == 4 else None  # NCHW, or OIHW of a weight


def explain_by_channel(arrays: ArrayPair, advice: str) -> Cause | None:
    """Report an affine function with its own slope and offset in every channel."""
    left, right = map(flatten_channels, arrays)
    slope, offset = fit_line(right, left)
    share = explained_share(slope * right + offset, ArrayPair(left, right))
    if right.shape[1] < MIN_VALUES or share < ENOUGH:
        return None
    function = f"a times the right plus b, with a {describe_range(slope)} and b {describe_range(offset)}"
    evidence = f"in every channel the left side is {function}, which explains {share:.1%} of the difference"
    return Cause(NAME, evidence, advice, confidence=0.7)


def describe_range(values: Array) -> str:
    return f"{values.min():.4g} … {values.max():.4g}"
