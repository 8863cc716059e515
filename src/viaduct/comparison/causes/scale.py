"""One factor between the sides, as of a sum in place of a mean, or a factor and an offset in each channel."""

from __future__ import annotations

import numpy as np

from viaduct.comparison.divergence import ArrayPair, Divergence, explained_share, fit_factor, flatten_channels
from viaduct.comparison.rows import Cause
from viaduct.comparison.tensors import Array

NAME = "wrong scale"
ADVICE = {
    "input": "Compare the preprocessing: division by 255, mean and standard deviation, and in which order they come.",
    "gradient": "Compare sum and mean: over the batch, over the ranks; and see that the loss scale is divided out.",
    "parameter": "Compare how the weight is drawn or loaded: fan in against fan out, a missing gain.",
    "update": "Compare learning rate, weight decay and the optimizer's bias correction at this step.",
    "output": "Compare the operator's constants: a mean in place of a sum, a temperature, a missing division.",
}
ENOUGH = 0.98  # share of the difference that the factors must explain


def find_cause(divergence: Divergence) -> Cause | None:
    arrays = divergence.load_float_arrays()
    if arrays is None or not (np.isfinite(arrays.left).all() and np.isfinite(arrays.right).all()):
        return None
    role = "gradient" if divergence.role in ("grad_input", "grad_output", "gradient") else divergence.role
    advice = ADVICE["input" if divergence.origin.kind == "input" and role == "output" else role]
    factor = float(fit_factor(arrays.left, arrays.right))
    if factor and (share := explained_share(factor * arrays.right, arrays)) > ENOUGH:
        evidence = f"the left side is {factor:.6g} times the right side, which explains {share:.1%} of the difference"
        return Cause(NAME, evidence, advice, confidence=0.9)
    return explain_by_channel(arrays, advice) if arrays.left.ndim == 4 else None


def explain_by_channel(arrays: ArrayPair, advice: str) -> Cause | None:
    """Report an affine relation with its own factor and offset in every channel."""
    left, right = map(flatten_channels, arrays)
    centred = right - right.mean(1, keepdims=True)
    slope = fit_factor(left, centred, 1)
    prediction = slope[:, None] * centred + left.mean(1, keepdims=True)
    if right.shape[1] < 8 or explained_share(prediction, ArrayPair(left, right)) < ENOUGH:
        return None
    shift = left.mean(1) - slope * right.mean(1)
    factors, offsets = describe_range(slope), describe_range(shift)
    evidence = f"in every channel the left side is a times the right plus b: a {factors}, b {offsets}"
    return Cause(NAME, evidence, advice, confidence=0.7)


def describe_range(values: Array) -> str:
    return f"{values.min():.4g} … {values.max():.4g}"
