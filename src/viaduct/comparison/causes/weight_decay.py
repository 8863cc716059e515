"""Another weight decay: the updates differ by a multiple of the weight itself.

Weight decay, decoupled or as an L2 term of plain SGD, adds a multiple of the weight to its update. Two updates from the
same gradient and weight differ by the weight times the difference of learning rate * decay.
"""

from __future__ import annotations

from viaduct.comparison.rows import Cause
from viaduct.comparison.scene import Scene, explained_share, fit_factor, rms
from viaduct.comparison.tensors import Array, Role

NAME = "weight decay"
ADVICE = (
    "Compare the optimizers' weight decay: its value, which parameter groups have it (norms and biases often do not), "
    "whether it is decoupled (AdamW) or an L2 term, and whether the loss has such a term besides."
)
ENOUGH = 0.9  # share of the difference that the weight explains
SAME = 1e-3  # relative difference up to which weight and gradient count as equal


def find_cause(scene: Scene) -> Cause | None:
    both = scene.load_origin()
    if scene.role != "update" or both is None or both.left.dtype.kind != "f" or both.left.size < 2:
        return None
    weight = load_equal(scene, "parameter")
    if weight is None or weight.shape != both.left.shape or not has_equal_gradient(scene):
        return None
    factor = float(fit_factor(both.left - both.right, weight))
    share = explained_share(both.right + factor * weight, both)
    if not factor or share < ENOUGH:
        return None
    side = "left" if factor < 0 else "right"
    evidence = (
        f"the updates differ by {factor:.4g} times the weight, which explains {share:.0%} of the difference: learning "
        f"rate times weight decay is larger by {abs(factor):.4g} on the {side}"
    )
    return Cause(NAME, 0.97 * share, evidence, ADVICE)


def load_equal(scene: Scene, role: Role) -> Array | None:
    """Return the right side's parameter or gradient of the update; None if the sides differ in it."""
    rows = scene.find_rows(role, scene.row.stored.index)
    both = scene.load_row(rows[0]) if rows else None
    if both is None or both.left.dtype.kind != "f" or rms(both.left - both.right) > SAME * rms(both.right):
        return None
    return both.right


def has_equal_gradient(scene: Scene) -> bool:
    """Return True if the sides agree in the gradient of this weight, or if it was not dumped."""
    return not scene.find_rows("gradient", scene.row.stored.index) or load_equal(scene, "gradient") is not None
