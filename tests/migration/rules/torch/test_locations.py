"""Tensors on the card, on the CPU, and at an unknown location."""

from __future__ import annotations

import pytest

from migration.checking import list_findings

HEAD = "import numpy as np\nimport torch\n"


def risk_of_double(code: str) -> list[str]:
    """Return the statuses of findings on `y = (code).double()`: none for a tensor on the CPU."""
    return [status for _, status in list_findings(f"{HEAD}y = ({code}).double()\n", "double")]


@pytest.mark.parametrize("code", ["torch.zeros(3)", "torch.tensor(x.cpu())", "x.numpy()", "np.zeros(3)", "x.to('cpu')"])
def test_a_tensor_on_the_cpu_is_not_on_the_card(code: str) -> None:
    assert not risk_of_double(code)


@pytest.mark.parametrize("code", ["x.cuda()", "torch.zeros(3, device=device)", "torch.stack([x.to(device), y])", "x"])
def test_a_tensor_on_the_card_or_at_an_unknown_place_is_reported(code: str) -> None:
    assert risk_of_double(code) == ["manual"]


def test_a_variable_is_on_the_card_if_one_of_its_values_is() -> None:
    source = f"{HEAD}x = torch.zeros(3)\nif use:\n    x = x.cuda()\ny = x.double()\n"
    assert list_findings(source, "double") == [(6, "manual")]
