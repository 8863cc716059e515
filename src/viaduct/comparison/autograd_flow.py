"""Autograd's graph: the modules that produced a tensor, and the nodes through which gradients leave a module.

Module hooks do not see functions between modules (`out + shortcut`, flatten). Autograd's graph has a node for each:
followed back from a module's input, it leads to the modules that computed this input.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge
from torch.utils.weak import TensorWeakRef

Node: TypeAlias = Any  # torch.autograd.graph.Node; C++ nodes and Python ones share no class that mypy knows
Edge: TypeAlias = tuple[Node, int]  # a tensor in the graph: the node that computed it, and the number of its output
MAX_NODES = 20_000  # visited in one walk through the graph; then the walk ends, and what it has not found is missing


def find_edge(tensor: Tensor) -> Edge | None:
    """Return the edge of a tensor; None if it requires no gradient or gradients are disabled."""
    if not tensor.requires_grad or not torch.is_grad_enabled():
        return None
    edge = get_gradient_edge(tensor)
    return edge.node, edge.output_nr


class TensorProducers:
    """The modules that returned the tensors of a step: by edge, or by tensor if it has no edge."""

    def __init__(self) -> None:
        self._by_edge: dict[Edge, str] = {}
        self._by_tensor: dict[int, tuple[TensorWeakRef, int, str]] = {}  # by id: tensor, its version, module

    def add_producer(self, tensor: Tensor, edge: Edge | None, op: str) -> None:
        """Record that a module returned a tensor. The first record counts: inner modules return before outer ones."""
        if edge is not None:
            self._by_edge.setdefault(edge, op)
        elif not tensor.is_inference() and self._find_producer(tensor) is None:
            self._by_tensor[id(tensor)] = (TensorWeakRef(tensor), tensor._version, op)

    def find_producers(self, tensor: Tensor, edge: Edge | None) -> list[str]:
        """Return the modules from whose outputs a tensor was computed without another module in between."""
        if edge is None:
            producer = None if tensor.is_inference() else self._find_producer(tensor)
            return [producer] if producer else []
        producers: dict[str, None] = {}
        waiting, visited = [edge], {edge[0]}
        while waiting and len(visited) < MAX_NODES:
            node, number = waiting.pop()
            if (producer := self._by_edge.get((node, number))) is not None:
                producers[producer] = None
                continue
            for following, output_index in node.next_functions:
                # A node is visited once, unless another of its outputs has a known producer.
                if following is not None and ((following, output_index) in self._by_edge or following not in visited):
                    visited.add(following)
                    waiting.append((following, output_index))
        return list(producers)

    def _find_producer(self, tensor: Tensor) -> str | None:
        """Return the module that returned a tensor without an edge, if the tensor was not written to since."""
        if id(tensor) not in self._by_tensor:
            return None
        reference, version, op = self._by_tensor[id(tensor)]
        return op if reference() is tensor and version == tensor._version else None


def find_exits(outputs: Iterable[Edge], inputs: Iterable[Edge]) -> dict[Edge, list[Edge]]:
    """Return for each input of a module the places where its gradient leaves: pairs of node and index of its input."""
    leaving: dict[Edge, list[Edge]] = {edge: [] for edge in inputs}
    for link, edge in iterate_links(outputs, leaving):
        if edge in leaving:
            leaving[edge].append(link)
    return leaving


def find_used_within(outputs: Collection[Edge], inputs: Collection[Edge]) -> set[Edge]:
    """Return the outputs of a module that were used to compute other outputs."""
    if len(outputs) < 2:
        return set()
    return {edge for _, edge in iterate_links(outputs, inputs) if edge in outputs}


def iterate_links(outputs: Iterable[Edge], inputs: Collection[Edge]) -> Iterator[tuple[Edge, Edge]]:
    """Yield the links of the graph between a module's outputs and its inputs, against the direction of computing.

    A link is a pair: a node with the index of its input, and the edge (the tensor) that is this input.
    """
    # Nodes older than every input cannot belong to the module. The sequence number of a leaf's node (AccumulateGrad)
    # says nothing about its age.
    oldest = min((read_sequence_number(node) for node, _ in inputs if node.next_functions), default=0)
    visited = {node for node, _ in outputs if not any(node is other for other, _ in inputs)}
    waiting = list(visited)
    while waiting and len(visited) < MAX_NODES:
        node = waiting.pop()
        for input_index, (following, number) in enumerate(node.next_functions):
            if following is None:
                continue
            yield (node, input_index), (following, number)
            is_new = (following, number) not in inputs and following not in visited
            if is_new and read_sequence_number(following) >= oldest:
                visited.add(following)
                waiting.append(following)


def read_sequence_number(node: Node) -> int:
    return int(node._sequence_nr())
