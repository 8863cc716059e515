"""Max and average pooling."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton", reason="Triton is not installed")

from kernels.check_kernels import check_pool, find_wrong
from kernels.interpreter import Interpret
from viaduct.kernels.pooling import Pool


@pytest.mark.process
@pytest.mark.parametrize(
    ("kind", "size", "stride", "height", "width"),
    [
        ("max", 3, 1, 7, 7),
        ("max", 3, 2, 7, 5),
        ("max", 3, 2, 6, 8),
        ("max", 2, 1, 5, 6),
        ("max", 2, 2, 7, 8),
        ("average", 3, 1, 6, 7),
        ("average", 3, 2, 7, 8),
        ("average", 2, 1, 5, 6),
        ("whole", 5, 3, 14, 11),
    ],
)
def test_a_pool_agrees_with_float64(
    kind: str, size: int, stride: int, height: int, width: int, interpret: Interpret
) -> None:
    assert find_wrong(interpret(check_pool, kind, size, stride, height, width)) == {}


def test_whole_windows_have_no_padding_and_others_begin_in_it() -> None:
    average, same = Pool(5, 3, average=True, valid_only=True), Pool(3, 2, average=False)
    assert average.compute_output_size(14, 11) == F.avg_pool2d(torch.zeros(1, 1, 14, 11), 5, 3).shape[2:]
    assert average.compute_padding_before(14, 11) == (0, 0)
    assert same.compute_output_size(7, 8) == (4, 4)
    assert same.compute_padding_before(7, 8) == (1, 0)
