"""Layered drawing of a small directed graph, top to bottom: producers stand above their consumers.

A node's layer is its longest path from a source; a source stands directly above its first consumer. An edge that spans
several layers gets a *lane* (a narrow node) in each layer between, so that lines do not cross boxes. Nodes and lanes of
a layer are ordered by the mean position of their neighbours. Made for some dozens of nodes around one operator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import ClassVar

from viaduct.reporting.links import check_nearby
from viaduct.reporting.texts import shorten_name
from viaduct.reporting.tones import Tone

WIDTH, HEIGHT = 190, 54  # size of a box in pixels
LANE_WIDTH = 26  # pixels
GAP_X, GAP_Y = 18, 40  # pixels between boxes
LETTERS = 22  # letters of 12 px that fit a box; longer names lose their middle; the tooltip has the full name
SWEEPS = 8  # passes over the layers to order them, downwards and upwards in turn
LANE_PREFIX = "\0"  # prefix of a lane's name; no node's name begins with it

Edge = tuple[str, str]
Layer = list[str]  # names of nodes and lanes, left to right


@dataclass(frozen=True)
class Node:
    """`name` identifies a node, `label` (default: the name) is shown, `note` is the small line below it.

    A click leads to `address`; `focus` emphasises the box.
    """

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
    """Edges run from producer to consumer; one that names an unknown node, or would close a cycle, is left out."""

    template: ClassVar[str] = "graph_drawing.html"

    title: str
    nodes: Sequence[Node]
    edges: Sequence[Edge]
    text: str = ""

    def drawing(self) -> GraphLayout:
        names = [node.name for node in self.nodes]
        layers, chains = assign_layers(names, remove_cycles(names, self.edges))
        centres = place_nodes(order_layers(layers, chains))
        width = max((x + get_half_width(name) for name, (x, _) in centres.items()), default=0) + 1
        boxes = []
        for node in self.nodes:
            x, y = centres[node.name]
            boxes.append(Box(node, x - WIDTH / 2, y - HEIGHT / 2))
        return GraphLayout(
            boxes=boxes,
            lines=[(edge, draw_edge([centres[name] for name in chain])) for edge, chain in chains.items()],
            width=round(width),
            height=len(layers) * (HEIGHT + GAP_Y) - GAP_Y + 2 if layers else 0,
        )


@dataclass(frozen=True)
class Box:
    """One drawn node and its top left corner."""

    node: Node
    x: float
    y: float

    @property
    def label(self) -> str:
        return shorten_name(self.node.label or self.node.name, LETTERS)

    @property
    def note(self) -> str:
        return shorten_name(self.node.note, LETTERS + 4)  # its letters are smaller


@dataclass(frozen=True)
class GraphLayout:
    """Boxes with their positions, and the SVG path of each edge."""

    boxes: Sequence[Box]
    lines: Sequence[tuple[Edge, str]]
    width: int
    height: int
    box_size: ClassVar[tuple[int, int]] = (WIDTH, HEIGHT)

    @property
    def summary(self) -> str:
        """Return the text for screen readers."""
        return "; ".join(f"{source} feeds {target}" for (source, target), _ in self.lines) or "no edges"


def remove_cycles(names: Sequence[str], edges: Sequence[Edge]) -> list[Edge]:
    """Return each edge once, without those that name an unknown node or would close a cycle."""
    consumers: dict[str, set[str]] = {name: set() for name in names}
    kept_edges = []
    for source, target in dict.fromkeys(edges):
        if source in consumers and target in consumers and source not in find_reachable(target, consumers):
            consumers[source].add(target)
            kept_edges.append((source, target))
    return kept_edges


def find_reachable(start: str, consumers: Mapping[str, set[str]]) -> set[str]:
    """Return the nodes that can be reached from a node, including itself."""
    reached, pending = {start}, [start]
    while pending:
        new = consumers[pending.pop()] - reached
        reached |= new
        pending += new
    return reached


def assign_layers(names: Sequence[str], edges: Sequence[Edge]) -> tuple[list[Layer], dict[Edge, list[str]]]:
    """Return the layers, and for each edge its chain: source, lanes in the layers between, target."""
    depths = compute_depths(names, edges)
    layers: list[Layer] = [[] for _ in range(max(depths.values(), default=-1) + 1)]
    for name in names:
        layers[depths[name]].append(name)
    chains = {}
    for number, (source, target) in enumerate(edges):
        lanes = []
        for level in range(depths[source] + 1, depths[target]):
            lanes.append(f"{LANE_PREFIX}{number}.{level}")
            layers[level].append(lanes[-1])
        chains[source, target] = [source, *lanes, target]
    return layers, chains


def compute_depths(names: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """Return the longest path to each node; a node without producers goes directly above its first consumer."""
    depths = dict.fromkeys(names, 0)
    for _ in names:
        for source, target in edges:
            depths[target] = max(depths[target], depths[source] + 1)
    fed = {target for _, target in edges}
    for name in names:
        consumer_depths = [depths[target] for source, target in edges if source == name]
        if name not in fed and consumer_depths:
            depths[name] = min(consumer_depths) - 1
    return depths


def order_layers(layers: list[Layer], chains: Mapping[Edge, list[str]]) -> list[Layer]:
    """Sort each layer in place by the mean position of its neighbours, above and below in turn; return the layers."""
    above: dict[str, list[str]] = {name: [] for layer in layers for name in layer}
    below: dict[str, list[str]] = {name: [] for layer in layers for name in layer}
    for chain in chains.values():
        for source, target in pairwise(chain):
            above[target].append(source)
            below[source].append(target)
    for sweep in range(SWEEPS):
        # Downwards from the second layer, upwards from the last but one.
        neighbours, swept = (above, layers[1:]) if sweep % 2 == 0 else (below, layers[-2::-1])
        position = {name: i - len(layer) / 2 for layer in layers for i, name in enumerate(layer)}
        for layer in swept:
            layer.sort(key=lambda name: fmean([position[other] for other in neighbours[name]] or [position[name]]))
            position.update({name: i - len(layer) / 2 for i, name in enumerate(layer)})
    return layers


def place_nodes(layers: list[Layer]) -> dict[str, tuple[float, float]]:
    """Return the centre of every node and lane; layers are centred under the widest."""
    widths = [sum(2 * get_half_width(name) + GAP_X for name in layer) - GAP_X for layer in layers]
    widest = max(widths, default=0)
    centres = {}
    for level, (layer, width) in enumerate(zip(layers, widths, strict=True)):
        x = (widest - width) / 2 + 1
        for name in layer:
            centres[name] = (x + get_half_width(name), 1 + level * (HEIGHT + GAP_Y) + HEIGHT / 2)
            x += 2 * get_half_width(name) + GAP_X
    return centres


def get_half_width(name: str) -> float:
    return (LANE_WIDTH if name.startswith(LANE_PREFIX) else WIDTH) / 2


def draw_edge(centres: Sequence[tuple[float, float]]) -> str:
    """Return the SVG path from the first box to the last, straight down through the lanes between."""
    x, bottom = centres[0][0], centres[0][1] + HEIGHT / 2
    path = f"M{x:.0f} {bottom:.0f}"
    for index, (next_x, next_y) in enumerate(centres[1:], 1):
        top = next_y - HEIGHT / 2
        middle = (bottom + top) / 2
        path += f"C{x:.0f} {middle:.0f} {next_x:.0f} {middle:.0f} {next_x:.0f} {top:.0f}"
        x, bottom = next_x, top + HEIGHT
        if index < len(centres) - 1:
            path += f"V{bottom:.0f}"
    return path
