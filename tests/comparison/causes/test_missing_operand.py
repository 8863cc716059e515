"""A sum that lacks one of its operands."""

from __future__ import annotations

import numpy as np
import pytest

from comparison.comparison_builder import ComparisonBuilder


@pytest.mark.parametrize("relu", [False, True])
def test_a_missing_operand_is_found_among_earlier_tensors(relu: bool) -> None:
    builder = ComparisonBuilder()
    branch, shortcut = builder.normal(2, 8, 6, 6), builder.normal(2, 8, 6, 6)
    builder.add("block.norm", branch, branch, order=1)
    builder.add("block", shortcut, shortcut, "input", order=2)
    sides = [branch, branch + shortcut]
    builder.add("block", *([np.maximum(side, 0) for side in sides] if relu else sides), order=2)
    cause = builder.causes()[0]
    assert cause.name == "missing residual add"
    assert "without block:input:0" in cause.evidence or "without block.norm" in cause.evidence
