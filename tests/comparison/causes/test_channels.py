"""Channels that were exchanged."""

from __future__ import annotations

from comparison.comparison_builder import Array, ComparisonBuilder


def test_red_and_blue_exchanged_are_swapped_channels() -> None:
    builder = ComparisonBuilder()
    images = builder.normal(4, 3, 8, 8)
    builder.add("network", images[:, ::-1], images, "input")
    cause = builder.causes(kind="input")[0]
    assert cause.name == "swapped channels"
    assert "RGB against BGR" in cause.evidence


def test_two_channels_of_many_are_swapped_channels_even_beside_dead_ones(values: Array) -> None:
    values[:, [4, 9]] = 0
    order = [0, 2, 1, *range(3, 16)]
    builder = ComparisonBuilder()
    builder.add("op", values[:, order], values)
    assert builder.cause() == "swapped channels"
    assert "1 and 2 exchanged" in builder.causes()[0].evidence
