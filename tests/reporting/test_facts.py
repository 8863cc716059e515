"""Names and their values."""

from __future__ import annotations

from viaduct.reporting import Facts


def test_facts_keep_their_order_and_are_formatted():
    assert list(Facts({"b": True, "a": None, "rate": 0.1}).drawing().items()) == [
        ("b", "yes"),
        ("a", "–"),
        ("rate", "0.1"),
    ]
