"""A sum was accumulated in half precision, or in another order.

One rounding changes a number by half the spacing of its format at most. Accumulating n products in this format costs
about sqrt(n) roundings, and more if the terms are much smaller than the sum. A difference of some roundings of float32
comes from another order of the terms, which is not a mistake.
"""

from __future__ import annotations

import math

import numpy as np

from viaduct.comparison.divergence import ArrayPair, Divergence, correlation, has_finite_floats, relative_error
from viaduct.comparison.grids import FLOAT32, HALF_FORMATS, FloatFormat, find_uniform_grid
from viaduct.comparison.records import Array, Cause

NAME = "half-precision reduction"
ORDER_NAME = "different reduction order"
ADVICE = (
    "Let this operator accumulate in float32: torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = "
    "False (and the bf16 one), on an NPU high_precision for it; a hand-written kernel needs a float32 accumulator."
)
ORDER_ADVICE = (
    "If nothing else differs, no change is needed: compare with a wider threshold, or run with --deterministic."
)


def find_cause(divergence: Divergence) -> Cause | None:
    arrays = divergence.load_arrays()
    if arrays is None or not has_finite_floats(arrays):
        return None
    if divergence.role in ("parameter", "update"):
        return None  # neither is a sum of products
    terms, error = count_terms(divergence, arrays), relative_error(arrays)
    for half in HALF_FORMATS:
        if half.contains_all(arrays.left) and not half.contains_all(arrays.right):
            return explain_half_values(arrays, half, terms, error)
    if cause := explain_other_order(terms, error):
        return cause
    return explain_wider_values(arrays, terms, error) if has_half_precision(divergence) else None


def has_half_precision(divergence: Divergence) -> bool:
    """Return True if any tensor of the step is in half precision."""
    names = {half.name for half in HALF_FORMATS}
    sides = (tensor for row in divergence.step_rows for tensor in (row.pair.left, row.pair.right))
    return any(tensor is not None and tensor.dtype in names for tensor in sides)


def explain_half_values(arrays: ArrayPair, half: FloatFormat, terms: int, error: float) -> Cause | None:
    """Report half-precision values that are off by more than one rounding, but within a sum's error."""
    steps = np.abs(arrays.left - arrays.right) / half.spacing(arrays.right)
    typical, bound = float(np.median(steps)), half.epsilon * 4 * max(terms, 4)
    if typical < 0.3 or error > bound or error > 0.25 or is_fixed_point(arrays.left, half):
        return None
    evidence = (
        f"every value on the left is a {half.name} number, typically {typical:.1f} steps from the right side's, while "
        f"one rounding costs at most 0.5; relative error {error:.1e}, {error / half.epsilon:.1f} roundings, in sums of "
        f"{terms:,} terms"
    )
    return Cause(NAME, evidence, ADVICE, confidence=0.9)


def is_fixed_point(values: Array, half: FloatFormat) -> bool:
    """Return True for values in equal steps that are much wider than the format's spacing, as of int8 quantisation."""
    uniform = find_uniform_grid(values)
    return uniform is not None and uniform.step >= 4 * float(np.median(half.spacing(values[values != 0])))


def explain_wider_values(arrays: ArrayPair, terms: int, error: float) -> Cause | None:
    """Report noise as large as half-precision sums cause, in a result that is stored in a wider format."""
    dependence = abs(correlation(arrays.left - arrays.right, arrays.right))  # noise does not depend on the values
    for half in reversed(HALF_FORMATS):
        bound = 2 * half.epsilon * math.sqrt(max(terms, 4))
        if 0.5 * half.epsilon < error < bound and dependence < 0.3 and terms > 1:
            roundings = f"{error / half.epsilon:.1f} {half.name} roundings"
            return Cause(NAME, f"the error looks like noise of {roundings}, of {terms:,} terms", ADVICE, confidence=0.5)
    return None


def explain_other_order(terms: int, error: float) -> Cause | None:
    """Report an error that is typical of float32 sums in another order."""
    if terms > 1 and 0 < error <= 8 * FLOAT32.epsilon * math.sqrt(terms):
        evidence = f"relative error {error:.1e}, which is typical of float32 sums of {terms:,} terms in another order"
        return Cause(ORDER_NAME, evidence, ORDER_ADVICE, confidence=0.8)
    return None


def count_terms(divergence: Divergence, arrays: ArrayPair) -> int:
    """Return the number of terms in the sum of an element: by the weight, a norm's channel, or the input's size."""
    weight = divergence.find_weight()
    if weight is not None and len(weight.tensor.shape) > 1:
        return math.prod(weight.tensor.shape[1:])
    source = divergence.find_first_input()
    size = math.prod(source.tensor.shape) if source is not None else arrays.left.size
    channels = arrays.left.shape[1] if arrays.left.ndim > 1 else 1
    return max(1, size // arrays.left.size, size // channels if "norm" in divergence.op_type.lower() else 1)
