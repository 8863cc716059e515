"""The left side computed in a shorter floating-point format (half precision, TF32), or stored its result in it.

Either every finite left value is a number of the shorter format, and nearly all are within one rounding of the right
side's. Or the layer is computed again from input and weights that are rounded to the shorter format, and this explains
most of the difference.
"""

from __future__ import annotations

from viaduct.comparison.divergence import Divergence
from viaduct.comparison.grids import BFLOAT16, FLOAT16, HALF_FORMATS, TF32, is_one_rounding
from viaduct.comparison.records import Cause
from viaduct.comparison.replay import Replay, replay_origin

NAME = "reduced precision"
ADVICE = (
    "If this precision is meant, compare with thresholds for it (--cosine, --euclid); if not, turn autocast or TF32 "
    "off: `--precision fp32 --set precision.tf32=false` in `viaduct train`; elsewhere set "
    "torch.backends.cudnn.allow_tf32 = False, for all convolutions, and torch.backends.cuda.matmul.allow_tf32 = False, "
    "for all matrix products; in TensorFlow on an NPU put keep_dtype_scope() around this operator."
)
ENOUGH = 0.7  # share of the difference that rounded input and weights must explain


def find_cause(divergence: Divergence) -> Cause | None:
    arrays = divergence.load_float_arrays()
    if arrays is None:
        return None
    for half in HALF_FORMATS:
        if is_one_rounding(arrays.left, arrays.right, half):
            evidence = f"every finite value on the left is a {half.name} number, and nearly all are within one rounding"
            return Cause(NAME, f"{evidence} of the right side's", ADVICE, confidence=0.9)
    replay = replay_origin(divergence)
    return None if replay is None else explain_by_replay(replay)


def explain_by_replay(replay: Replay) -> Cause | None:
    """Report rounding of input and weights that gives the left side's output."""
    for short in (TF32, FLOAT16, BFLOAT16):
        x, weight = short.round(replay.x_NCHW), short.round(replay.weight_OIHW)
        output = replay.predict(x=x, weight=weight)
        outputs = {"input and weights": output, "input, weights and output": short.round(output)}
        share, rounded = max((replay.explained_share(values), name) for name, values in outputs.items())
        if share > ENOUGH:
            # Both have ten fraction bits, so within float16's range they cannot be told apart.
            is_also_half = short is TF32 and FLOAT16.contains_all(x) and FLOAT16.contains_all(weight)
            name = "TF32 or float16" if is_also_half else short.name
            evidence = f"computed again with {rounded} rounded to {name}, {share:.0%} of the difference is gone"
            return Cause(NAME, evidence, ADVICE, confidence=0.85 + 0.1 * share)
    return None
