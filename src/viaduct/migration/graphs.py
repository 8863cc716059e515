"""Directed graphs as dicts: node -> its successors, such as file -> files that it imports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

Edges = Mapping[str, Iterable[str]]


def find_reachable(start: str, edges: Edges) -> set[str]:
    """Return a node and all nodes that can be reached from it."""
    reached, pending = {start}, [start]
    while pending:
        new = {*edges.get(pending.pop(), ())} - reached
        reached |= new
        pending += new
    return reached


def reverse_edges(edges: Edges) -> dict[str, set[str]]:
    """Return the graph with every edge reversed; nodes without an incoming edge are absent."""
    reverse: dict[str, set[str]] = defaultdict(set)
    for node, targets in edges.items():
        for target in targets:
            reverse[target].add(node)
    return dict(reverse)


def link_both_ways(edges: Edges) -> dict[str, set[str]]:
    reverse = reverse_edges(edges)
    return {node: {*edges.get(node, ()), *reverse.get(node, ())} for node in edges.keys() | reverse.keys()}


def group_connected(nodes: Iterable[str], edges: Edges) -> list[list[str]]:
    """Return the connected components that contain the nodes, each sorted; the direction of edges is ignored."""
    links = link_both_ways(edges)
    groups: list[list[str]] = []
    grouped: set[str] = set()
    for node in nodes:
        if node not in grouped:
            group = find_reachable(node, links)
            grouped |= group
            groups.append(sorted(group))
    return groups
