"""Operators that are missing or limited on a card."""

from __future__ import annotations

import pytest

from viaduct.cards.operators import OPERATORS


def test_every_name_in_the_table_is_one_of_torch() -> None:
    torch = pytest.importorskip("torch")
    for table in OPERATORS.values():
        for name in table:
            module = torch
            for part in name.split("."):
                module = getattr(module, part)
