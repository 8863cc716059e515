"""Launches of viaduct's own kernels as signatures; no card is needed."""

from __future__ import annotations

import pytest

from viaduct.tuning.operators import kernel
from viaduct.tuning.signature import Signature


def test_another_operator_is_no_kernel() -> None:
    convolution = Signature.of("conv2d", x="1x3x8x8")
    assert kernel.read_key(convolution.key) is None
    with pytest.raises(ValueError, match="'conv2d x=1x3x8x8' is not a kernel"):
        kernel.require_key(convolution)


def test_a_launch_is_found_again_from_its_signature() -> None:
    launch = ("scale_shift", (1024, 64, "bfloat16"))
    assert kernel.read_key(kernel.describe(launch).key) == launch
