"""Linear layers: which have variants, and that each variant computes what the default computes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tuning.operators.variants import find_wrong_variants
from viaduct.tuning.operators import linear
from viaduct.tuning.signature import Signature


def describe_linear(compute: torch.dtype) -> Signature:
    with torch.autocast("cpu", torch.bfloat16, enabled=compute == torch.bfloat16):
        signature = linear.describe(nn.Linear(12, 5), torch.randn(6, 12, requires_grad=True))
    assert signature is not None
    return signature


def test_subclasses_and_inputs_of_three_dimensions_are_not_described() -> None:
    class Doubling(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    assert linear.describe(Doubling(12, 5), torch.randn(6, 12)) is None
    assert linear.describe(nn.Linear(12, 5), torch.randn(2, 6, 12)) is None


@pytest.mark.parametrize("compute", [torch.float32, torch.bfloat16])
def test_every_variant_is_as_close_to_float64_as_the_default(compute: torch.dtype) -> None:
    assert find_wrong_variants(describe_linear(compute)) == {}


def test_onednn_is_switched_in_low_precision_on_the_cpu_only() -> None:
    def list_switches(compute: torch.dtype, device: str) -> set[object]:
        return {point["forward_onednn"] for point in linear.make_space(describe_linear(compute), device).points()}

    assert list_switches(torch.float32, "cpu") == {True}
    assert list_switches(torch.bfloat16, "cuda") == {True}
    assert list_switches(torch.bfloat16, "cpu") == {True, False}
