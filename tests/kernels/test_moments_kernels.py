"""Partial statistics and partial sums of other kernels, combined."""

from __future__ import annotations

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

from kernels.check_kernels import check_parts, find_wrong
from kernels.interpreter import Interpret


@pytest.mark.process
@pytest.mark.parametrize("parts", [1, 7, 300])  # 256 at a time
def test_combined_parts_agree_with_float64(parts: int, interpret: Interpret) -> None:
    assert find_wrong(interpret(check_parts, parts), 1e-4) == {}
