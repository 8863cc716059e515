"""Inspection of a graph to explain why two runs differ, and the perturbation of its weights.

Each operator of the training graph, up to MAX_OPERATORS, becomes a fact: its type, its constants and attributes, and
the line that created it. Operators inside TensorFlow functions (such as a dataset's map function) have no line.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from viaduct.rehearsal.inspection import Fact
from viaduct.rehearsal.observe import MAX_EVALUATIONS
from viaduct.rehearsal.perturbation import perturb_array
from viaduct.rehearsal.tf1_stage import sessions
from viaduct.rehearsal.tf1_stage.inputs import find_operator_line
from viaduct.rehearsal.tf1_stage.subgraph import uses_weights
from viaduct.rehearsal.tf1_stage.variables import assign_value, find_variables, read_tensor

MAX_OPERATORS = 50_000  # recorded operators of a graph
MAX_ELEMENTS = 16  # of a constant that is recorded as numbers; larger constants are recorded as a checksum
MAX_TEXT = 200  # characters of an attribute that is recorded as text; longer ones are recorded as a checksum
# Attributes that follow from others, or are names that TensorFlow generates.
OMITTED_ATTRIBUTES = {
    "container", "shared_name", "output_shapes", "output_types", "metadata", "Toutput_types", "f", "func",
}  # fmt: skip


class GraphInspection(sessions.Observer):
    """Records the facts of the graph that takes the first training step."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []

    def before_run(self, run: sessions.GraphRun) -> None:
        if run.is_training and not self.facts:
            self.facts = [*list_operators(run.graph), *list_function_nodes(run.graph)]


class Evaluations(sessions.Observer):
    """Records a fingerprint of what each evaluation returns, which are metrics and predictions.

    Evaluations are runs that use weights and do not train. The first MAX_EVALUATIONS are recorded.
    """

    def __init__(self) -> None:
        self.fingerprints: list[list[float]] = []  # of each evaluation

    def receive_result(self, run: sessions.GraphRun, result: Any) -> None:
        if run.is_training or len(self.fingerprints) >= MAX_EVALUATIONS or not uses_weights(run.graph, run.subgraph):
            return
        if fingerprint := compute_fingerprint(result):
            self.fingerprints.append(fingerprint)


def compute_fingerprint(result: Any) -> list[float]:
    """Return two sums for each array in a result: of its elements, weighted by position, and of their magnitudes.

    The weights make a permutation visible, as in `observe.compute_fingerprint`.
    """
    sums: list[float] = []
    for value in iterate_numbers(result):
        flat = np.asarray(value, np.float64).reshape(-1)
        sums += [float((flat * np.cos(np.arange(flat.size))).sum()), float(np.abs(flat).sum())]
    return sums


def iterate_numbers(result: Any) -> Iterator[Any]:
    """Yield the numbers and arrays of real numbers in the result of a run."""
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (list, tuple)):
        for part in result:
            yield from iterate_numbers(part)
    elif isinstance(result, (bool, int, float, np.generic, np.ndarray)) and np.asarray(result).dtype.kind in "biuf":
        yield result


class Perturbation(sessions.Observer):
    """Perturbs every trainable variable by about one unit in the last place before the first training step."""

    def __init__(self) -> None:
        self.is_done = False

    def before_run(self, run: sessions.GraphRun) -> None:
        if not run.is_training or self.is_done:
            return
        self.is_done = True
        session = run.session_record.session
        with sessions.mark_internal():
            for variable in find_variables(run.graph, "trainable_variables"):
                value = np.asarray(session.run(read_tensor(variable)))
                assign_value(session, variable, perturb_array(variable.op.name, value))


def list_operators(graph: Any) -> Iterator[Fact]:
    for op in graph.get_operations()[:MAX_OPERATORS]:
        yield Fact("op", op.name, describe_node(op.node_def), find_operator_line(op))


def list_function_nodes(graph: Any) -> Iterator[Fact]:
    """Yield the nodes inside functions. Functions are numbered: TensorFlow's names of them differ between runs."""
    try:
        library = graph.as_graph_def().library
    except ValueError:  # the graph is larger than a protocol buffer can be
        return
    for number, function in enumerate(library.function):
        for node in function.node_def:
            yield Fact("op", f"function {number}/{node.name}", describe_node(node))


def describe_node(node: Any) -> dict[str, Any]:
    """Return the type of a node and its attributes, without private ones and those of OMITTED_ATTRIBUTES."""
    names = sorted(name for name in node.attr if name not in OMITTED_ATTRIBUTES and not name.startswith("_"))
    return {"type": node.op, **{name: describe_attribute(node.attr[name]) for name in names}}


def describe_attribute(value: Any) -> Any:
    """Return an attribute as text and a numeric constant as numbers; long ones as a checksum."""
    from tensorflow.python.framework import tensor_util

    if value.WhichOneof("value") != "tensor":
        text = " ".join(str(value).split())
        return text if len(text) <= MAX_TEXT else f"{zlib.crc32(text.encode()):08x}"
    array = tensor_util.MakeNdarray(value.tensor)
    if array.dtype.kind in "biuf" and array.size <= MAX_ELEMENTS:
        return array.tolist()
    data = repr(array.tolist()).encode() if array.dtype.kind == "O" else array.tobytes()
    return f"{array.dtype} {list(array.shape)} {zlib.crc32(data):08x}"
