"""The operator computed in a shorter format (half precision, TF32), or stored its result in it.

Two signs: every finite left value is a number of the shorter format, and nearly all lie within one rounding of the
right; or the layer recomputed from inputs and weights rounded to the shorter format gives most of the difference.
"""

from __future__ import annotations

from viaduct.comparison.divergence import Divergence
from viaduct.comparison.grids import BFLOAT16, FLOAT16, HALVES, TF32, is_one_rounding
from viaduct.comparison.replay import Replay, replay_origin
from viaduct.comparison.rows import Cause

NAME = "reduced precision"
ADVICE = (
    "If this precision is meant, compare with thresholds for it (--cosine, --euclid); if not, turn autocast or TF32 "
    "off for this operator: `--precision fp32 --set precision.tf32=false` in `viaduct train`, elsewhere "
    "torch.backends.cudnn.allow_tf32 = False, or keep_dtype on an NPU."
)


def find_cause(divergence: Divergence) -> Cause | None:
    arrays = divergence.load_arrays()
    if arrays is None or arrays.left.dtype.kind != "f":
        return None
    for grid in HALVES:
        if is_one_rounding(arrays.left, arrays.right, grid):
            close = "nearly all are within one rounding of the right side's"
            return Cause(
                NAME, f"every finite value on the left is a {grid.name} number, and {close}", ADVICE, confidence=0.9
            )
    replay = replay_origin(divergence)
    return None if replay is None else explain_by_replay(replay)


def explain_by_replay(replay: Replay) -> Cause | None:
    """Report rounding of input and weights that gives the left side's output."""
    # TF32 and float16 have the same mantissa and explain the same within float16's range, so TF32 comes first.
    for grid in (TF32, FLOAT16, BFLOAT16):
        x, weight = grid.round(replay.x_NCHW), grid.round(replay.weight_OIHW)
        raw = replay.predict(x=x, weight=weight)
        share = max(replay.explained_share(raw), replay.explained_share(grid.round(raw)))
        if share > 0.7:
            rounded = f"input and weights rounded to {grid.name}"
            evidence = f"computed again with {rounded}, {share:.0%} of the difference is gone"
            return Cause(NAME, evidence, ADVICE, confidence=0.85 + 0.1 * share)
    return None
