"""Examples of a batch in another order."""

from __future__ import annotations

from comparison.comparison_builder import Array, name_cause_of_output


def test_examples_in_another_order_are_a_shuffle(values: Array) -> None:
    assert name_cause_of_output(values[[3, 1, 0, 2, 4, 5, 7, 6]], values) == "shuffle"
