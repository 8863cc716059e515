"""`tensor.pin_memory()` with and without a test for a card."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says

LOADER = "from torch.utils.data import DataLoader\n"


@pytest.mark.parametrize(
    "source",
    [
        f"{LOADER}DataLoader(d)\nDataLoader(d, pin_memory=False)\nDataLoader(d, **more)\n",
        f"{LOADER}DataLoader(d, pin_memory=True)\nDataLoader(d, **dict(pin_memory=True))\n",
        "import torch\nif torch.cuda.is_available():\n    x = x.pin_memory()\n",
    ],
)
def test_what_needs_nothing_for_the_available_card_stays(source: str) -> None:
    check_noop("pinned_memory", source, to="any")


@pytest.mark.parametrize(
    ("source", "status", "word"),
    [
        ("import torch\nx = x.pin_memory()\n", "advice", "is_available"),
    ],
)
def test_what_needs_review_for_the_available_card_is_reported(source: str, status: str, word: str) -> None:
    check_says("pinned_memory", source, status, word, to="any")
