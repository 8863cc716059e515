"""Convolutions: which have variants, and that each variant computes what the default computes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tuning.operators.variants import find_wrong_variants
from viaduct.tuning.operators import conv2d
from viaduct.tuning.signature import Signature


def describe_convolution(compute: torch.dtype, size: int, stride: int, groups: int, *, frozen: bool) -> Signature:
    module = nn.Conv2d(8, 8, size, stride, size // 2, groups=groups).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = torch.randn(4, 8, 9, 9).to(memory_format=torch.channels_last).requires_grad_(not frozen)
    with torch.autocast("cpu", torch.bfloat16, enabled=compute == torch.bfloat16):
        signature = conv2d.describe(module, x)
    assert signature is not None
    return signature


SIGNATURES = [
    describe_convolution(compute, size, stride, groups, frozen=frozen)
    for compute in (torch.float32, torch.bfloat16)
    for size, stride, groups, frozen in ((1, 1, 1, False), (1, 2, 1, False), (3, 1, 1, True), (3, 2, 4, False))
]


def test_convolutions_without_variants_are_not_described() -> None:
    assert conv2d.describe(nn.Conv2d(3, 4, 3, padding="same"), torch.randn(1, 3, 8, 8)) is None
    assert conv2d.describe(nn.ConvTranspose2d(3, 4, 3), torch.randn(1, 3, 8, 8)) is None


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda signature: signature.key[:60])
def test_every_variant_is_as_close_to_float64_as_the_default(signature: Signature) -> None:
    assert find_wrong_variants(signature) == {}


def test_a_1x1_convolution_may_be_a_matrix_product_and_a_3x3_may_not() -> None:
    pointwise = describe_convolution(torch.float32, 1, 1, 1, frozen=False)
    wide = describe_convolution(torch.float32, 3, 1, 1, frozen=False)
    assert "matrix_product" in {point["implementation"] for point in conv2d.make_space(pointwise, "cpu").points()}
    assert "matrix_product" not in {point["implementation"] for point in conv2d.make_space(wide, "cpu").points()}


def test_the_output_has_the_layout_that_the_default_gives() -> None:
    module = nn.Conv2d(8, 8, 1)
    for layout in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(2, 8, 5, 5).to(memory_format=layout)
        for point in ({"layout": "contiguous"}, {"layout": "channels_last"}, {"implementation": "matrix_product"}):
            y = conv2d.make_forward({**conv2d.DEFAULT, **point})(module, x)
            assert conv2d.find_layout(y) == conv2d.find_layout(module(x)), (layout, point)
