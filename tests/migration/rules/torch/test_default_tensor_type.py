"""The default tensor type."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says, migrate_source

HEAD = "import torch\n"


@pytest.mark.parametrize("given", ["torch.FloatTensor", "'torch.DoubleTensor'", "kind", ""])
def test_a_default_type_of_the_cpu_is_left_alone(given: str) -> None:
    check_noop("torch.default_tensor_type", f"{HEAD}torch.set_default_tensor_type({given})\n")


@pytest.mark.parametrize(
    "given",
    [
        "torch.cuda.HalfTensor",
        "'torch.cuda.HalfTensor'",
        "torch.cuda.HalfTensor if ready else torch.FloatTensor",
        "'torch.cuda.HalfTensor' if ready else 'torch.FloatTensor'",
    ],
)
@pytest.mark.parametrize("to", ["npu", "mlu", "any"])
def test_a_default_type_of_cuda_needs_manual_review(given: str, to: str) -> None:
    text = f"{HEAD}torch.set_default_tensor_type({given})\n"
    check_says("torch.default_tensor_type", text, "manual", "torch.set_default_dtype(torch.float16)", to=to)


@pytest.mark.parametrize("to", ["npu", "mlu"])
def test_no_rule_edits_a_default_type_of_cuda(to: str) -> None:
    text = f"{HEAD}torch.set_default_tensor_type('torch.cuda.HalfTensor')\n"
    text += "torch.set_default_tensor_type(torch.cuda.FloatTensor)\n"
    result = migrate_source(text, to=to)
    assert result.after.decode() == text
    assert [finding.risk for finding in result.findings] == ["high", "high"]


def test_a_default_type_in_a_variable_is_reported_too() -> None:
    text = f"{HEAD}kind = torch.cuda.HalfTensor\ntorch.set_default_tensor_type(kind)\n"
    check_says("torch.default_tensor_type", text, "manual", "torch.set_default_dtype(torch.float16)")
