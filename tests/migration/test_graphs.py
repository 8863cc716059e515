"""Graphs as dicts: what can be reached, and what is connected."""

from __future__ import annotations

from viaduct.migration.graphs import find_reachable, group_connected, link_both_ways, reverse_edges

EDGES = {"train": {"model"}, "model": {"layers", "model"}, "eval": {"model"}, "tool": set[str]()}


def test_what_nothing_leads_to_is_not_reached() -> None:
    assert find_reachable("model", EDGES) == {"model", "layers"}
    assert find_reachable("unknown", EDGES) == {"unknown"}


def test_edges_are_turned_round() -> None:
    assert reverse_edges(EDGES) == {"model": {"train", "model", "eval"}, "layers": {"model"}}
    assert link_both_ways({"a": {"b"}}) == {"a": {"b"}, "b": {"a"}}


def test_connected_nodes_are_one_group_whatever_the_direction() -> None:
    assert group_connected(EDGES, EDGES) == [["eval", "layers", "model", "train"], ["tool"]]
