"""Strings that name a tensor type."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says

HELPER = "from accelerator_device import accelerator\n"

HEAD = "import torch\nimport torch_npu\n"


@pytest.mark.parametrize(
    "source",
    [
        "x.type('torch.cuda.FloatTensor')\n",
        "x.type('torch.cuda.HalfTensor' if ready else 'torch.FloatTensor')\n",
        "if x.type() == 'torch.cuda.LongTensor':\n    pass\n",
    ],
)
def test_a_tensor_type_becomes_the_cards(source: str) -> None:
    check_rewrite("tensor_type", HEAD + source, HEAD + source.replace("torch.cuda", "torch.npu"))


@pytest.mark.parametrize(
    "source",
    [
        "import torch\nx = x.type('torch.FloatTensor')\ny = x.type()\n",
    ],
)
def test_what_needs_nothing_for_the_available_card_stays(source: str) -> None:
    check_noop("tensor_type", source, to="any")


@pytest.mark.parametrize(
    ("head", "before", "after"),
    [
        ("import torch", "x = x.type('torch.cuda.FloatTensor')", "x = x.type(accelerator.FloatTensor)"),
    ],
)
def test_it_follows_the_available_card(head: str, before: str, after: str) -> None:
    check_rewrite("tensor_type", f"{head}\n{before}\n", f"{head}\n{HELPER}{after}\n", to="any")


@pytest.mark.parametrize(
    ("source", "status", "word"),
    [
        ("import torch\nif x.type() == 'torch.cuda.FloatTensor':\n    pass\n", "manual", "dtype"),
    ],
)
def test_what_needs_review_for_the_available_card_is_reported(source: str, status: str, word: str) -> None:
    check_says("tensor_type", source, status, word, to="any")
