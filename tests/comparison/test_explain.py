"""The explanation of a judgement."""

from __future__ import annotations

from dataclasses import replace

from comparison.comparison_builder import ComparisonBuilder, add_chain
from viaduct.comparison.explain import explain_no_mismatch


def test_nothing_bad_has_no_origin() -> None:
    builder = ComparisonBuilder()
    add_chain(builder, 0, 0, 0)
    explanation = builder.explain()
    assert explanation.origin is None
    assert explanation.cause is None
    assert "within their thresholds" in explanation.headline


def test_flagged_tensors_are_not_reported_to_be_within_their_thresholds() -> None:
    builder = ComparisonBuilder()
    add_chain(builder, 0, 0, 0)
    rows = [replace(row, result="flag") if number == 0 else row for number, row in enumerate(builder.rows)]
    assert "within their thresholds or flagged (1)." in explain_no_mismatch(rows).headline


def test_tensors_of_which_only_statistics_were_dumped_are_counted_in_the_headline() -> None:
    builder = ComparisonBuilder()
    add_chain(builder, 0, 0, 0)
    first = builder.rows[0]
    assert first.measures is not None
    rows = [replace(first, measures=replace(first.measures, statistics_only=True)), *builder.rows[1:]]
    assert "within their thresholds, 1 of them judged by dumped statistics alone." in explain_no_mismatch(rows).headline


def test_without_dumped_inputs_the_sides_part_at_the_origin_or_before() -> None:
    for inputs, where in ((True, "the sides part at op1"), (False, "the sides part at or before op1")):
        builder = ComparisonBuilder()
        add_chain(builder, 0, 0.2, 0.3, inputs=inputs)
        assert builder.explain().headline.startswith(where)


def test_the_neighbourhood_follows_the_edges_two_hops_far() -> None:
    builder = ComparisonBuilder()
    add_chain(builder, 0, 0, 0.2, 0.2, 0.2, 0.2)
    edges = {f"op{number}": [f"op{number - 1}"] for number in range(1, 6)}
    around = {neighbour.op: neighbour.hops for neighbour in builder.explain(edges).neighbours}
    assert around == {"op0": -2, "op1": -1, "op2": 0, "op3": 1, "op4": 2}


def test_without_edges_the_neighbours_are_those_that_ran_before_and_after_and_no_edge_is_claimed() -> None:
    builder = ComparisonBuilder()
    add_chain(builder, 0, 0, 0.2, 0.2, 0.2, 0.2)
    explanation = builder.explain({"op5": ["op4"]})  # nothing is known about op2, the origin
    around = {neighbour.op: neighbour.hops for neighbour in explanation.neighbours}
    assert around == {"op0": -2, "op1": -1, "op2": 0, "op3": 1, "op4": 2}
    assert explanation.edges == ()
