"""Every variant of every kind computes what the default computes, forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from viaduct.tuning.measuring import Bench
from viaduct.tuning.operators import conv2d, linear, list_kinds, optimizer
from viaduct.tuning.signature import Signature


def describe_convolution(compute: torch.dtype, size: int, stride: int, groups: int, *, frozen: bool) -> Signature:
    module = nn.Conv2d(8, 8, size, stride, size // 2, groups=groups).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = torch.randn(4, 8, 9, 9).to(memory_format=torch.channels_last).requires_grad_(not frozen)
    with torch.autocast("cpu", torch.bfloat16, enabled=compute == torch.bfloat16):
        found = conv2d.describe(module, x)
    assert found is not None
    return found


def describe_linear(compute: torch.dtype) -> Signature:
    with torch.autocast("cpu", torch.bfloat16, enabled=compute == torch.bfloat16):
        found = linear.describe(nn.Linear(12, 5), torch.randn(6, 12, requires_grad=True))
    assert found is not None
    return found


def describe_update(name: str) -> Signature:
    options = {"momentum": 0.9, "nesterov": True} if name == "SGD" else {}
    made = optimizer.CLASSES[name](nn.Linear(4, 3).parameters(), lr=0.1, fused=True, weight_decay=0.1, **options)
    found = optimizer.describe(made)
    assert found is not None
    return found


SIGNATURES = [
    *(
        describe_convolution(compute, size, stride, groups, frozen=frozen)
        for compute in (torch.float32, torch.bfloat16)
        for size, stride, groups, frozen in ((1, 1, 1, False), (1, 2, 1, False), (3, 1, 1, True), (3, 2, 4, False))
    ),
    describe_linear(torch.float32),
    describe_linear(torch.bfloat16),
    describe_update("SGD"),
    describe_update("AdamW"),
]


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda signature: signature.key[:60])
def test_every_variant_is_as_close_to_float64_as_the_default(signature: Signature) -> None:
    kind = list_kinds()[signature.kind]
    space = kind.make_space(signature, "cpu", False)
    assert space.size > 1
    bench = Bench("cpu", list_kinds())
    wrong = {str(point): bench.check_values(signature, point, space.default) for point in space.points()}
    assert {point: why for point, why in wrong.items() if why} == {}


def test_a_1x1_convolution_may_be_a_matrix_product_and_a_3x3_may_not() -> None:
    pointwise = describe_convolution(torch.float32, 1, 1, 1, frozen=False)
    wide = describe_convolution(torch.float32, 3, 1, 1, frozen=False)
    assert "matrix_product" in {point["implementation"] for point in conv2d.make_space(pointwise, "cpu").points()}
    assert "matrix_product" not in {point["implementation"] for point in conv2d.make_space(wide, "cpu").points()}


def test_what_has_no_variants_is_not_described() -> None:
    assert conv2d.describe(nn.Conv2d(3, 4, 3, padding="same"), torch.randn(1, 3, 8, 8)) is None
    assert conv2d.describe(nn.ConvTranspose2d(3, 4, 3), torch.randn(1, 3, 8, 8)) is None
    assert optimizer.describe(torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1, foreach=True)) is None
