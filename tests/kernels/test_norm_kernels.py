"""Kernels of batch norm: statistics, scale and shift, and the backward pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

from kernels.check_tunable import Key, list_keys

KERNELS = (
    "scale_shift",
    "scale_shift_add",
    "scale_shift_add_two",
    "batch_norm_input_gradient",
    "batch_norm_statistics",
    "batch_norm_gradient_sums",
    "repeat_rows",
)


@pytest.mark.process
@pytest.mark.parametrize("key", list_keys(*KERNELS), ids=str)
def test_every_launch_size_computes_what_pytorch_does(key: Key, assert_sizes_agree: Callable[[Key], None]) -> None:
    assert_sizes_agree(key)
