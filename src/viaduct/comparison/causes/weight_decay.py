"""Another weight decay: the updates differ by a multiple of the weight itself.

Weight decay, decoupled or as an L2 term of plain SGD, adds a multiple of the weight to its update. Two updates from the
same gradient and weight differ by the weight times the difference of learning rate * decay.
"""

from __future__ import annotations

from viaduct.comparison.divergence import Divergence, explained_share, fit_factor, rms
from viaduct.comparison.records import Array, Cause, Role

NAME = "weight decay"
ADVICE = (
    "Compare the optimizers' weight decay: its value, which parameter groups have it (norms and biases often do not), "
    "whether it is decoupled (AdamW) or an L2 term, and whether the loss has such a term besides."
)
ENOUGH = 0.9  # share of the difference that the weight explains
SAME = 1e-3  # relative difference up to which weight and gradient count as equal


def find_cause(divergence: Divergence) -> Cause | None:
    arrays = divergence.load_float_arrays()
    if divergence.role != "update" or arrays is None or arrays.left.size < 2:
        return None
    weight = load_if_equal(divergence, "parameter")
    if weight is None or weight.shape != arrays.left.shape:
        return None
    is_gradient_dumped = bool(divergence.find_rows("gradient", divergence.row.tensor.index))
    if is_gradient_dumped and load_if_equal(divergence, "gradient") is None:
        return None
    factor = float(fit_factor(arrays.left - arrays.right, weight))
    share = explained_share(arrays.right + factor * weight, arrays)
    if not factor or share < ENOUGH:
        return None
    side = "left" if factor < 0 else "right"
    evidence = (
        f"the updates differ by {factor:.4g} times the weight, which explains {share:.0%} of the difference, as if "
        f"learning rate times weight decay were larger by {abs(factor):.4g} on the {side}"
    )
    return Cause(NAME, evidence, ADVICE, confidence=0.97 * share)


def load_if_equal(divergence: Divergence, role: Role) -> Array | None:
    """Return the parameter or gradient that belongs to the update; None if the sides differ in it."""
    rows = divergence.find_rows(role, divergence.row.tensor.index)
    arrays = divergence.load_row(rows[0]) if rows else None
    if arrays is None or arrays.left.dtype.kind != "f" or rms(arrays.left - arrays.right) > SAME * rms(arrays.right):
        return None
    return arrays.right
