"""States of a cell: sums of terms for several readers."""

from __future__ import annotations

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

from kernels.check_kernels import check_state, find_wrong
from kernels.interpreter import Interpret


@pytest.mark.process
@pytest.mark.parametrize(
    ("kinds", "readers", "options"),
    [
        pytest.param("n", [True], {}, id="a norm with a ReLU"),
        pytest.param("n", [True, True, True], {"home": True}, id="a norm, part of a larger tensor"),
        pytest.param("nn", [True], {"channels": 72}, id="two norms"),
        pytest.param("nm", [False, False, False, True], {}, id="a norm and a pool, four readers"),
        pytest.param("mp", [True], {"channels": 8}, id="a pool and an image"),
        pytest.param("an", [False, True], {"dropped": True}, id="a pool and a norm, dropped paths"),
    ],
)
def test_a_sum_agrees_with_float64(
    kinds: str, readers: list[bool], options: dict[str, int], interpret: Interpret
) -> None:
    assert find_wrong(interpret(check_state, kinds, readers, **options)) == {}
