"""The stem for large images as one operation."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from kernels.check_kernels import check_stem, find_wrong
from kernels.interpreter import Interpret
from viaduct.kernels import stem


@pytest.mark.process
@pytest.mark.parametrize("same", [False, True])
def test_a_stem_agrees_with_float64(same: bool, interpret: Interpret) -> None:
    assert find_wrong(interpret(check_stem, same=same)) == {}


@pytest.mark.parametrize("offset", [0, 1])
def test_a_folded_weight_has_zeros_around_the_window_and_unfolds_to_itself(offset: int) -> None:
    weight = torch.randn(4, 3, 7, 7)
    folded = stem.fold_weight(weight, offset, torch.float32)
    assert folded.shape == (256, 4)
    assert int((folded == 0).sum()) == 4 * (256 - 147)
    assert torch.equal(stem.unfold_weight(folded.t(), offset), weight)
