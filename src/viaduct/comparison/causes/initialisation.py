"""Weights that were drawn again: uncorrelated numbers of about the same spread."""

from __future__ import annotations

import numpy as np

from viaduct.comparison.divergence import Divergence, correlation
from viaduct.comparison.rows import Cause, Row

NAME = "initialisation"
ADVICE = (
    "Start both sides from one checkpoint, or draw the weights on the CPU and copy them: one seed gives different "
    "numbers on different devices and in different frameworks."
)


def find_cause(divergence: Divergence) -> Cause | None:
    arrays = divergence.load_arrays()
    if divergence.role != "parameter" or arrays is None or arrays.left.size < 16 or arrays.left.dtype.kind != "f":
        return None
    left, right = (float(np.std(side)) for side in arrays)
    similarity = abs(correlation(arrays.left, arrays.right))
    if similarity > 0.3 or not right or not 0.75 < left / right < 1.33:
        return None
    others = [row for row in divergence.rows if is_random_weight(row, divergence)]
    bad = sum(row.result == "bad" for row in others)
    evidence = (
        f"correlation {similarity:.2f} between the sides, but the same spread ({left:.3g} and {right:.3g}); "
        f"{bad} of {len(others)} weights of this step differ"
    )
    return Cause(NAME, evidence, ADVICE, confidence=0.95 if bad > 1 else 0.8)


def is_random_weight(row: Row, divergence: Divergence) -> bool:
    """Return True for a weight that is initialised at random, unlike norms and biases."""
    stored = row.tensor
    is_parameter = (stored.step, stored.rank, stored.role) == (
        divergence.origin.step,
        divergence.origin.rank,
        "parameter",
    )
    return is_parameter and len(stored.shape) > 1
