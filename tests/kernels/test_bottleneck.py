"""Bottleneck blocks, ours and those of other packages, as single operations."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

from kernels.check_kernels import Errors, check_blocks, check_foreign, find_wrong
from kernels.foreign_blocks import FOREIGN
from kernels.interpreter import Interpret
from viaduct.models.resnet import Bottleneck
from viaduct.models.resnext import GroupedBottleneck


def find_wrong_twice(interpret: Interpret, *check: Any, **options: Any) -> Errors:
    """Return what is wrong in two draws of the inputs.

    Now and then a number is so near to zero that float32 and float64 see it on either side of a ReLU,
    which sends a gradient elsewhere.
    """
    wrong = find_wrong(interpret(*check, **options))
    return wrong and find_wrong(interpret(*check, **options))


@pytest.mark.process
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        pytest.param(Bottleneck, {"same": False, "filters": 16}, id="bottleneck"),
        pytest.param(Bottleneck, {"same": True, "filters": 16, "size": 7}, id="SAME, odd size"),
        pytest.param(Bottleneck, {"same": False, "filters": 16, "size": 6, "mean": True}, id="mean"),
        pytest.param(GroupedBottleneck, {"same": True, "filters": 128, "size": 6}, id="grouped"),
    ],
)
def test_our_blocks_agree_with_float64(kind: type[Bottleneck], options: dict[str, Any], interpret: Interpret) -> None:
    assert find_wrong_twice(interpret, check_blocks, kind, **options) == {}


@pytest.mark.process
@pytest.mark.parametrize(("kind", "size"), [*((kind, 8) for kind in FOREIGN), ("torchvision", 7)])
def test_blocks_of_other_packages_agree_with_float64(kind: str, size: int, interpret: Interpret) -> None:
    assert find_wrong_twice(interpret, check_foreign, kind, size=size) == {}
