"""Runs that are loops on the device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from viaduct.rehearsal.tf1_stage import loops


class Graph:
    """Something that can be referred to weakly."""


def make_run(graph: Graph, *names: str, training: bool = True) -> Any:
    subgraph = SimpleNamespace(ops=[SimpleNamespace(name=name) for name in names])
    return SimpleNamespace(graph=graph, is_training=training, subgraph=subgraph)


def test_only_a_training_run_that_reaches_a_declared_operator_is_a_loop() -> None:
    graph, other = Graph(), Graph()
    loops.declare_loop(graph, SimpleNamespace(name="loop"))
    assert loops.count_steps(make_run(graph, "loop")) == 1, "its length is not set yet"
    loops.set_loop_counts(graph, 5)
    assert loops.count_steps(make_run(graph, "loop", training=False)) == 1
    assert loops.count_steps(make_run(graph, "loss")) == 1
    assert loops.count_steps(make_run(other, "loop")) == 1
    assert loops.count_steps(make_run(graph, "loss", "loop")) == 5


def test_an_operator_that_is_declared_after_the_length_was_set_is_one_step() -> None:
    graph = Graph()
    loops.declare_loop(graph, SimpleNamespace(name="first"))
    loops.set_loop_counts(graph, 5)
    loops.declare_loop(graph, SimpleNamespace(name="second"))
    assert loops.count_steps(make_run(graph, "second")) == 1
    assert loops.count_steps(make_run(graph, "first")) == 5
