"""A small directed graph, drawn in layers from top to bottom: what feeds a node stands above it.

Layers come from the longest path, an edge that passes a layer gets a place in it (so lines do not run through boxes),
and neighbours are ordered by where their own neighbours stand. Meant for some dozens of nodes: the surroundings of one
operator, not a network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from viaduct.reporting.links import check_nearby
from viaduct.reporting.tones import SIGNS, Tone

WIDTH, HEIGHT, LANE = 190, 54, 26
"""A box, and the narrow place that a passing edge takes."""
GAP_X, GAP_Y = 18, 40
LETTERS = 22
"""So many letters of 12 px fit a box; longer names lose their middle, and keep it in the tooltip."""
SWEEPS = 8

Layer = list[str]


@dataclass(frozen=True)
class Node:
    """`name` identifies, `label` is shown; `note` is the small line below it; `address` is where a click leads."""

    name: str
    tone: Tone
    label: str = ""
    note: str = ""
    address: str = ""
    focus: bool = False

    def __post_init__(self) -> None:
        if self.address:
            check_nearby(self.address)


@dataclass(frozen=True)
class GraphDrawing:
    """Edges run from producer to consumer; one that names an unknown node, or closes a circle, is left out."""

    template: ClassVar[str] = "graph_drawing.html"

    title: str
    nodes: Sequence[Node]
    edges: Sequence[tuple[str, str]]
    text: str = ""

    def drawing(self) -> LaidOut:
        edges = without_circles([node.name for node in self.nodes], self.edges)
        layers, chains = assign_layers([node.name for node in self.nodes], edges)
        positions = place_nodes(order_layers(layers, chains))
        width = max((x + reach(name) for name, (x, _) in positions.items()), default=0) + 1
        return LaidOut(
            self,
            boxes=[Box(node, *corner(positions[node.name])) for node in self.nodes],
            lines=[(edge, draw_edge([positions[name] for name in chain])) for edge, chain in chains.items()],
            width=round(width),
            height=len(layers) * (HEIGHT + GAP_Y) - GAP_Y + 2 if layers else 0,
        )


@dataclass(frozen=True)
class Box:
    """One drawn node."""

    node: Node
    x: float
    y: float

    @property
    def sign(self) -> str:
        return SIGNS[self.node.tone]

    @property
    def label(self) -> str:
        return shorten_name(self.node.label or self.node.name, LETTERS)

    @property
    def note(self) -> str:
        return shorten_name(self.node.note, LETTERS + 4)


@dataclass(frozen=True)
class LaidOut:
    """Nodes and edges with their positions."""

    graph: GraphDrawing
    boxes: Sequence[Box]
    lines: Sequence[tuple[tuple[str, str], str]]
    width: int
    height: int

    @property
    def box(self) -> tuple[int, int]:
        return WIDTH, HEIGHT

    @property
    def summary(self) -> str:
        """Return the text for screen readers."""
        return "; ".join(f"{source} feeds {target}" for (source, target), _ in self.lines) or "no edges"


def shorten_name(text: str, most: int) -> str:
    """Lose the middle, since names differ at their ends: layer3.0.downsample… → layer3.0.d…mple.1."""
    if len(text) <= most:
        return text
    tail = most // 2
    return f"{text[: most - tail - 1]}…{text[-tail:]}"


def without_circles(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Keep each edge once, in the order given, unless its target already leads to its source."""
    follows: dict[str, set[str]] = {name: set() for name in names}
    kept = []
    for source, target in dict.fromkeys(edges):
        if source in follows and target in follows and source not in reachable(target, follows):
            follows[source].add(target)
            kept.append((source, target))
    return kept


def reachable(start: str, follows: Mapping[str, set[str]]) -> set[str]:
    """Return the nodes that can be reached from a node."""
    seen, waiting = {start}, [start]
    while waiting:
        fresh = follows[waiting.pop()] - seen
        seen |= fresh
        waiting += fresh
    return seen


def assign_layers(
    names: Sequence[str], edges: Sequence[tuple[str, str]]
) -> tuple[list[Layer], dict[tuple[str, str], list[str]]]:
    """Names by layer, and for each edge the chain of places it passes; those between get names of their own."""
    depth = depths(names, edges)
    layers: list[Layer] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for name in names:
        layers[depth[name]].append(name)
    chains = {}
    for number, (source, target) in enumerate(edges):
        passing = [f"\0{number}.{level}" for level in range(depth[source] + 1, depth[target])]
        for level, lane in enumerate(passing, depth[source] + 1):
            layers[level].append(lane)
        chains[source, target] = [source, *passing, target]
    return layers, chains


def depths(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Longest path from above; a node that nothing feeds stands right above its first consumer."""
    depth = dict.fromkeys(names, 0)
    for _ in names:
        for source, target in edges:
            depth[target] = max(depth[target], depth[source] + 1)
    fed = {target for _, target in edges}
    for name in names:
        below = [depth[target] for source, target in edges if source == name]
        if name not in fed and below:
            depth[name] = min(below) - 1
    return depth


def order_layers(layers: list[Layer], chains: Mapping[tuple[str, str], list[str]]) -> list[Layer]:
    """Sort each layer by the mean place of its neighbours above, then below, a few times over."""
    links = [(chain[i], chain[i + 1]) for chain in chains.values() for i in range(len(chain) - 1)]
    above: dict[str, list[str]] = {name: [] for layer in layers for name in layer}
    below: dict[str, list[str]] = {name: [] for layer in layers for name in layer}
    for source, target in links:
        above[target].append(source)
        below[source].append(target)
    for sweep in range(SWEEPS):
        neighbours, walk = (above, layers[1:]) if sweep % 2 == 0 else (below, layers[-2::-1])
        position = {name: i - len(layer) / 2 for layer in layers for i, name in enumerate(layer)}
        for layer in walk:
            layer.sort(key=lambda name: mean([position[other] for other in neighbours[name]], position[name]))
            position.update({name: i - len(layer) / 2 for i, name in enumerate(layer)})
    return layers


def mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def place_nodes(layers: list[Layer]) -> dict[str, tuple[float, float]]:
    """The middle of every node and lane: each layer packed, and centred under the widest."""
    widths = [sum(2 * reach(name) + GAP_X for name in layer) - GAP_X for layer in layers]
    widest = max(widths, default=0)
    positions = {}
    for level, (layer, width) in enumerate(zip(layers, widths, strict=True)):
        x = (widest - width) / 2 + 1
        for name in layer:
            positions[name] = (x + reach(name), 1 + level * (HEIGHT + GAP_Y) + HEIGHT / 2)
            x += 2 * reach(name) + GAP_X
    return positions


def reach(name: str) -> float:
    """Half the width of a node, or of the lane of a passing edge."""
    return (LANE if name.startswith("\0") else WIDTH) / 2


def corner(middle: tuple[float, float]) -> tuple[float, float]:
    return middle[0] - WIDTH / 2, middle[1] - HEIGHT / 2


def draw_edge(middles: Sequence[tuple[float, float]]) -> str:
    """Return the path from the foot of a box to the head of the next, straight through the layers between."""
    x, y = middles[0]
    path = f"M{x:.0f} {y + HEIGHT / 2:.0f}"
    y += HEIGHT / 2
    for position, (next_x, next_y) in enumerate(middles[1:], 1):
        head = next_y - HEIGHT / 2
        half = (y + head) / 2
        path += f"C{x:.0f} {half:.0f} {next_x:.0f} {half:.0f} {next_x:.0f} {head:.0f}"
        passing = position < len(middles) - 1
        path += f"V{head + HEIGHT:.0f}" if passing else ""
        x, y = next_x, head + HEIGHT
    return path
