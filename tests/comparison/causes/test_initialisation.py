"""Weights that each side drew at random."""

from __future__ import annotations

from comparison.comparison_builder import ComparisonBuilder


def test_weights_drawn_with_another_seed_are_an_initialisation() -> None:
    builder = ComparisonBuilder()
    for name in ("a", "b"):
        builder.add(name, builder.normal(16, 8, 3, 3), builder.normal(16, 8, 3, 3), "parameter", parameter="weight")
    assert builder.cause(kind="parameter") == "initialisation"
