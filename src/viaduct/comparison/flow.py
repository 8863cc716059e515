"""Which module a tensor came from, and where a gradient leaves a module, read off autograd's graph.

Between modules there are functions (`out + shortcut`, flatten) that no module hook sees. Autograd's nodes know them:
from the tensor that enters a module the way back leads to the modules that it was made of.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge
from torch.utils.weak import TensorWeakRef

Node: TypeAlias = Any  # torch.autograd.graph.Node; C++ nodes and Python ones share no class that mypy knows
Edge: TypeAlias = tuple[Node, int]
FAR = 20_000  # nodes; a walk beyond has left the network


def edge_of(tensor: Tensor) -> Edge | None:
    """Where the gradient of this tensor goes; holding on to the node keeps its identity."""
    if not tensor.requires_grad or not torch.is_grad_enabled():
        return None
    edge = get_gradient_edge(tensor)
    return edge.node, edge.output_nr


class Flow:
    """Remembers who made which tensor."""

    def __init__(self) -> None:
        self._by_edge: dict[Edge, str] = {}
        self._by_tensor: dict[int, tuple[TensorWeakRef, int, str]] = {}

    def made(self, tensor: Tensor, edge: Edge | None, op: str) -> None:
        """The innermost module that returns a tensor is its maker."""
        if edge is not None:
            self._by_edge.setdefault(edge, op)
        elif not tensor.is_inference() and self._maker(tensor) is None:
            self._by_tensor[id(tensor)] = (TensorWeakRef(tensor), tensor._version, op)

    def makers(self, tensor: Tensor, edge: Edge | None) -> list[str]:
        """The operators that a tensor was made of."""
        if edge is None:
            maker = None if tensor.is_inference() else self._maker(tensor)
            return [maker] if maker else []
        found: dict[str, None] = {}
        waiting, visited = [edge], {edge[0]}
        while waiting and len(visited) < FAR:
            node, number = waiting.pop()
            if (maker := self._by_edge.get((node, number))) is not None:
                found[maker] = None
                continue
            for following, place in node.next_functions:
                if following is not None and ((following, place) in self._by_edge or following not in visited):
                    visited.add(following)
                    waiting.append((following, place))
        return list(found)

    def _maker(self, tensor: Tensor) -> str | None:
        reference, version, op = self._by_tensor.get(id(tensor), (lambda: None, 0, ""))
        return op if reference() is tensor and version == tensor._version else None


def exits(outputs: Iterable[Edge], inputs: Iterable[Edge]) -> dict[Edge, list[Edge]]:
    """For each input of a module: the nodes (and which of their gradients) through which its gradient leaves it."""
    leaving: dict[Edge, list[Edge]] = {edge: [] for edge in inputs}
    for origin, edge in links(outputs, leaving):
        if edge in leaving:
            leaving[edge].append(origin)
    return leaving


def used_within(outputs: Collection[Edge], inputs: Collection[Edge]) -> set[Edge]:
    """Outputs of a module that it has made others of its outputs from."""
    if len(outputs) < 2:
        return set()
    return {edge for _, edge in links(outputs, inputs) if edge in outputs}


def links(outputs: Iterable[Edge], inputs: Collection[Edge]) -> Iterator[tuple[Edge, Edge]]:
    """From a module's outputs back to its inputs: each node and number of one of its gradients, and where that goes.

    Nodes older than every input cannot belong to the module; a leaf has no age.
    """
    floor = min((sequence(node) for node, _ in inputs if node.next_functions), default=0)
    visited = {node for node, _ in outputs if not any(node is other for other, _ in inputs)}
    waiting = list(visited)
    while waiting and len(visited) < FAR:
        node = waiting.pop()
        for place, (following, number) in enumerate(node.next_functions):
            if following is None:
                continue
            yield (node, place), (following, number)
            if (following, number) not in inputs and following not in visited and sequence(following) >= floor:
                visited.add(following)
                waiting.append(following)


def sequence(node: Node) -> int:
    """Later nodes have larger numbers; those that gather a weight's gradient have the largest."""
    return int(node._sequence_nr())
