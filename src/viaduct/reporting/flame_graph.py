"""Flame graph: nested times as rows of boxes, outermost on top, such as the modules of a network within a step.

A box's width is its fraction of the root. A click or Enter widens a box to the full width, Escape goes back; the arrow
keys move along the tree. A table below has the figures of the largest boxes. Boxes too narrow to see are joined, which
keeps the page small for a network of thousands of operators.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from viaduct.reporting.figures import format_fixed, format_share
from viaduct.reporting.line_chart import COLOURS

MAX_BOXES = 1200  # boxes that are drawn, for the size of the page
MAX_ROWS = 400  # rows of the table; it lists the largest boxes
MAX_DEPTH = 24  # levels below the root that are drawn
# Fraction of the root below which boxes of one parent are joined; it is doubled until at most MAX_BOXES remain.
MIN_SHARE = 1 / 5000


@dataclass(frozen=True)
class FlameNode:
    """A box. `value` includes the values of its children. `colour` is an index; None: the colour of its parent.

    `note` follows the figures in the read-out.
    """

    name: str
    value: float
    children: Sequence[FlameNode] = ()
    colour: int | None = None
    note: str = ""


@dataclass(frozen=True)
class FlameGraph:
    """The tree under `root`; `legend` names the colours that its nodes use."""

    template: ClassVar[str] = "flame_graph.html"

    title: str
    root: FlameNode
    unit: str = ""
    legend: Sequence[tuple[int, str]] = ()
    text: str = ""

    @cached_property
    def boxes(self) -> list[FlameBox]:
        """Return the boxes that are drawn, parents before children."""
        min_share = MIN_SHARE
        boxes = self.flatten(min_share)
        while len(boxes) > MAX_BOXES:
            min_share *= 2
            boxes = self.flatten(min_share)
        return boxes

    @property
    def rows(self) -> int:
        return max((box.depth for box in self.boxes), default=0) + 1

    @property
    def largest_boxes(self) -> list[FlameBox]:
        """Return the boxes of the table, in the order of the tree."""
        if len(self.boxes) <= MAX_ROWS:
            return self.boxes
        limit = sorted((box.width for box in self.boxes), reverse=True)[MAX_ROWS - 1]
        return [box for box in self.boxes if box.width >= limit][:MAX_ROWS]

    def flatten(self, min_share: float) -> list[FlameBox]:
        """Return all boxes, parents before children; siblings narrower than `min_share` are joined into one."""
        total = self.root.value
        if total <= 0:
            return []
        unit = f"\N{NO-BREAK SPACE}{self.unit}" if self.unit else ""
        boxes: list[FlameBox] = []
        pending = [(self.root, -1, 0, 0.0, 0)]  # node, index of its parent's box, depth, left edge, parent's colour
        while pending:
            node, parent, depth, left, parent_colour = pending.pop()
            colour = parent_colour if node.colour is None else node.colour % COLOURS
            width = node.value / total
            figures = format_amount(node.value) + unit, format_share(width), node.note
            boxes.append(FlameBox(node.name, parent, depth, min(left, 1.0), width, colour, *figures))
            index, child_left = len(boxes) - 1, left
            children = []
            for child in join_small(node.children, min_share * total) if depth < MAX_DEPTH else ():
                children.append((child, index, depth + 1, child_left, colour))
                child_left += child.value / total
            pending += reversed(children)
        return boxes


@dataclass(frozen=True)
class FlameBox:
    """One drawn box; `parent` is an index into the boxes, -1 for the root; the root has `left` 0 and `width` 1."""

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


def join_small(children: Sequence[FlameNode], min_value: float) -> Iterator[FlameNode]:
    """Yield the children in order, then one node for all that are too small; children of value 0 are left out."""
    small = [child for child in children if 0 < child.value < min_value]
    yield from (child for child in children if child.value >= min_value and child.value > 0)
    if small:
        yield FlameNode(f"{len(small):,} smaller", sum(child.value for child in small))


def format_amount(value: float) -> str:
    """Return a number with zero to four decimals, fewer for a larger number."""
    return format_fixed(value, sum(abs(value) < limit for limit in (1000, 100, 1, 0.1)))
