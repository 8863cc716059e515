"""A weight that each side initialised at random: uncorrelated numbers of about the same standard deviation."""

from __future__ import annotations

import numpy as np

from viaduct.comparison.divergence import Divergence, correlation
from viaduct.comparison.records import Cause

NAME = "initialisation"
ADVICE = (
    "Start both sides from one checkpoint, or draw the weights on the CPU and copy them: one seed gives different "
    "numbers on different devices and in different frameworks."
)
MIN_VALUES = 16  # fewer may be correlated by chance


def find_cause(divergence: Divergence) -> Cause | None:
    arrays = divergence.load_float_arrays()
    if divergence.role != "parameter" or arrays is None or arrays.left.size < MIN_VALUES:
        return None
    left, right = (float(np.std(side)) for side in arrays)
    similarity = abs(correlation(arrays.left, arrays.right))
    if similarity > 0.3 or not right or not 0.75 < left / right < 1.33:
        return None
    # Parameters with one axis are not counted: many, such as a norm's scale, begin as constants.
    weights = [row for row in divergence.step_rows if row.tensor.role == "parameter" and len(row.tensor.shape) > 1]
    bad = sum(row.result == "bad" for row in weights)
    evidence = (
        f"correlation {similarity:.2f} between the sides, but about the same standard deviation ({left:.3g} and "
        f"{right:.3g}); {bad} of the {len(weights)} weights of this step with two axes or more are bad"
    )
    return Cause(NAME, evidence, ADVICE, confidence=0.95 if bad > 1 else 0.8)
