"""Nested times as rows of boxes, outermost on top: the modules of a network and what each takes of a step.

Each box is as wide as its share. A click or Enter widens a box to the whole drawing, Escape goes back; the arrow keys
walk along the tree. The same figures stand in a table under it. Boxes too narrow to be seen even after a zoom are
joined, so that a network of thousands of operators stays one page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from markupsafe import Markup

from viaduct.reporting.figures import write_fixed, write_share
from viaduct.reporting.line_chart import COLOURS
from viaduct.reporting.page import own_file

MOST_BOXES = 1200
MOST_ROWS = 400
"""Rows of the table, the largest boxes."""
DEEPEST = 24
SMALLEST = 1 / 5000
"""Share below which boxes of one parent are joined, at first."""


@dataclass(frozen=True)
class FlameNode:
    """A box: `value` holds its children's values and what it takes itself. `colour` None: that of its parent."""

    name: str
    value: float
    children: Sequence[FlameNode] = ()
    colour: int | None = None
    note: str = ""


@dataclass(frozen=True)
class FlameGraph:
    """`root` is the whole; `legend` names the colours that its nodes use."""

    template: ClassVar[str] = "flame_graph.html"

    title: str
    root: FlameNode
    unit: str = ""
    legend: Sequence[tuple[int, str]] = ()
    text: str = ""

    def drawing(self) -> FlameDrawing:
        smallest = SMALLEST
        boxes = self.flatten(smallest)
        while len(boxes) > MOST_BOXES:
            smallest *= 2
            boxes = self.flatten(smallest)
        return FlameDrawing(self, boxes)

    def flatten(self, smallest: float) -> list[FlameBox]:
        """Return all boxes, parents before children, without those narrower than `smallest`."""
        total = self.root.value
        if total <= 0:
            return []
        boxes: list[FlameBox] = []
        pending = [(self.root, -1, 0, 0.0, 0)]
        while pending:
            node, parent, depth, left, colour = pending.pop()
            own = colour if node.colour is None else node.colour % COLOURS
            boxes.append(self.make_box(node, parent, depth, left, own, total))
            index, edge = len(boxes) - 1, left
            below = []
            for child in join_small(node.children, smallest * total) if depth < DEEPEST else ():
                below.append((child, index, depth + 1, edge, own))
                edge += child.value / total
            pending += reversed(below)
        return boxes

    def make_box(self, node: FlameNode, parent: int, depth: int, left: float, colour: int, total: float) -> FlameBox:
        unit = f"\N{NO-BREAK SPACE}{self.unit}" if self.unit else ""
        return FlameBox(
            name=node.name,
            parent=parent,
            depth=depth,
            left=min(left, 1.0),
            width=node.value / total,
            colour=colour,
            amount=write_amount(node.value) + unit,
            share=write_share(node.value / total),
            note=node.note,
        )


@dataclass(frozen=True)
class FlameBox:
    """One drawn frame."""

    name: str
    parent: int
    depth: int
    left: float
    width: float
    colour: int
    amount: str
    share: str
    note: str

    @property
    def figures(self) -> str:
        return f"{self.amount}, {self.share}" + (f"; {self.note}" if self.note else "")


@dataclass(frozen=True)
class FlameDrawing:
    """Flame graph as the template needs it."""

    graph: FlameGraph
    boxes: Sequence[FlameBox]

    @property
    def style(self) -> Markup:
        return own_file("flame_graph.css")

    @property
    def rows(self) -> int:
        return max((box.depth for box in self.boxes), default=0) + 1

    @property
    def table(self) -> list[FlameBox]:
        """The largest boxes, in the order of the tree."""
        if len(self.boxes) <= MOST_ROWS:
            return list(self.boxes)
        limit = sorted((box.width for box in self.boxes), reverse=True)[MOST_ROWS - 1]
        return [box for box in self.boxes if box.width >= limit][:MOST_ROWS]


def join_small(children: Sequence[FlameNode], smallest: float) -> Iterator[FlameNode]:
    """Yield the children in their order, and at the end those that are too small as one."""
    small = [child for child in children if 0 < child.value < smallest]
    yield from (child for child in children if child.value >= max(smallest, 1e-300))
    if small:
        yield FlameNode(f"{len(small):,} smaller", sum(child.value for child in small))


def write_amount(value: float) -> str:
    size = abs(value)
    return write_fixed(value, 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 else 3 if size >= 0.1 else 4)
