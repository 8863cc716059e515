"""Variables of a graph, each once, and assignments that add nothing to the graph."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from rehearsal.snippets import evaluate
from rehearsal.tf1_scripts import needs_tensorflow
from viaduct.rehearsal.tf1_stage.variables import find_variables, unwrap_variable


class Graph:
    def __init__(self, **collections: list[Any]) -> None:
        self.collections = collections

    def get_collection(self, name: str) -> list[Any]:
        return self.collections.get(name, [])


def test_a_variable_in_two_collections_is_found_once_in_the_order_of_the_first() -> None:
    a, b, c = (SimpleNamespace() for _ in range(3))
    graph = Graph(variables=[b, a], trainable_variables=[a, c])
    assert [id(v) for v in find_variables(graph, "variables", "trainable_variables")] == [id(b), id(a), id(c)]


def test_a_distributed_variable_is_its_first_copy_and_others_are_themselves() -> None:
    copies = SimpleNamespace(), SimpleNamespace()
    distributed = SimpleNamespace(values=copies)
    assert unwrap_variable(distributed) is copies[0]
    slices = SimpleNamespace(values=[1.0])  # IndexedSlices have `values` that are no tuple
    assert unwrap_variable(slices) is slices
    assert find_variables(Graph(variables=[distributed, copies[0]]), "variables") == [copies[0]]


@needs_tensorflow
def test_a_value_is_assigned_in_a_finalized_graph_to_both_kinds_of_variable() -> None:
    answer = evaluate(
        "original",
        """
        from viaduct.rehearsal.tf1_stage.variables import assign_value, read_tensor
        kinds = [tf.get_variable("v%d" % kind, [2], use_resource=kind) for kind in (False, True)]
        reads = [read_tensor(variable) for variable in kinds]
        tf.get_default_graph().finalize()
        with tf.Session() as session:
            for variable in kinds:
                assign_value(session, variable, [1.0, 2.0])
            answer = session.run(reads)
        """,
    )
    assert answer == [[1, 2], [1, 2]]
