"""Calls of the helper module, and branches that ask for a card."""

from __future__ import annotations

import pytest

from migration.checking import check_says


def test_a_case_needs_manual_review() -> None:
    source = "import torch\nmatch device.type:\n    case 'cuda':\n        pass\n"
    check_says("any_device_compare", source, "manual", 'case "cuda" | "npu"', to="any")


@pytest.mark.parametrize(
    "source",
    [
        "if d.type == 'cuda':\n    a()\nelif d.type == 'npu':\n    b()\n",
        "if d.type == 'npu':\n    b()\nelif d.type == 'cuda':\n    a()\nelse:\n    c()\n",
        "k = 1 if d.type == 'cuda' else 2 if d.type == 'mlu' else 3\n",
        "if d.type == 'cpu':\n    c()\nelif d.type == 'xpu':\n    b()\nelif d.type == 'cuda':\n    a()\n",
    ],
)
def test_a_branch_beside_that_of_another_card_needs_manual_review(source: str) -> None:
    text = f"import torch\nd = torch.device(name)\n{source}"
    check_says("torch.any_device_compare", text, "manual", "its branch", to="any")
