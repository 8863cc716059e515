"""The explanation of a judgement."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from comparison.comparison_builder import Array, ComparisonBuilder
from viaduct.comparison.explain import explain_no_mismatch


def off(values: Array, by: float = 0.3) -> Array:
    """The same with noise of that relative size."""
    noise = np.random.default_rng(9).standard_normal(values.shape)
    return (values + by * np.std(values) * noise).astype(values.dtype)


def chain(builder: ComparisonBuilder, *errors: float, inputs: bool = True) -> list[str]:
    """Operators in a row, each with the error of its output; inputs are the outputs before."""
    names = [f"op{number}" for number in range(len(errors))]
    values = [builder.normal(4, 8, 6, 6) for _ in range(len(errors) + 1)]
    before = 0.0
    for number, (name, error) in enumerate(zip(names, errors, strict=True)):
        if inputs:
            given = values[number]
            builder.add(name, off(given, before) if before else given, given, "input", order=number)
        made = values[number + 1]
        builder.add(name, off(made, error) if error else made, made, order=number)
        before = error
    return names


def test_nothing_bad_has_no_origin() -> None:
    builder = ComparisonBuilder()
    chain(builder, 0, 0, 0)
    explanation = builder.explained()
    assert explanation.origin is None
    assert explanation.cause is None
    assert "within their thresholds" in explanation.headline


def test_flagged_tensors_are_not_reported_to_be_within_their_thresholds() -> None:
    builder = ComparisonBuilder()
    chain(builder, 0, 0, 0)
    rows = [replace(row, result="flag") if number == 0 else row for number, row in enumerate(builder.rows)]
    assert "within their thresholds or flagged (1)." in explain_no_mismatch(rows).headline


def test_the_neighbourhood_follows_the_edges_two_hops_far() -> None:
    builder = ComparisonBuilder()
    chain(builder, 0, 0, 0.2, 0.2, 0.2, 0.2)
    edges = {f"op{number}": [f"op{number - 1}"] for number in range(1, 6)}
    around = {neighbour.op: neighbour.hops for neighbour in builder.explained(edges).neighbours}
    assert around == {"op0": -2, "op1": -1, "op2": 0, "op3": 1, "op4": 2}


def test_without_edges_the_neighbours_are_those_that_ran_before_and_after_and_no_edge_is_claimed() -> None:
    builder = ComparisonBuilder()
    chain(builder, 0, 0, 0.2, 0.2, 0.2, 0.2)
    explanation = builder.explained({"op5": ["op4"]})  # nothing is known about op2, the origin
    around = {neighbour.op: neighbour.hops for neighbour in explanation.neighbours}
    assert around == {"op0": -2, "op1": -1, "op2": 0, "op3": 1, "op4": 2}
    assert explanation.edges == ()
