"""Kernels of pooling and its gradient."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

from kernels.check_tunable import Key, list_keys

KERNELS = (
    "pooling_forward",
    "pooling_backward",
)


@pytest.mark.process
@pytest.mark.parametrize("key", list_keys(*KERNELS), ids=str)
def test_every_launch_size_computes_what_pytorch_does(key: Key, assert_sizes_agree: Callable[[Key], None]) -> None:
    assert_sizes_agree(key)
