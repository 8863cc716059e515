"""AmoebaNet's factorised reduction."""

from __future__ import annotations

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

from kernels.check_kernels import check_halves, find_wrong
from kernels.interpreter import Interpret


@pytest.mark.process
@pytest.mark.parametrize(("height", "width"), [(6, 8), (7, 5), (1, 2)])
def test_a_factorised_reduction_agrees_with_float64(height: int, width: int, interpret: Interpret) -> None:
    assert find_wrong(interpret(check_halves, height, width)) == {}
