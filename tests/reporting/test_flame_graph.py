"""Nested boxes: nothing hostile becomes markup, small boxes are joined and not lost, figures are also in a table."""

import re

import pytest

from viaduct.reporting import FlameGraph, FlameNode, Page, Section, render_page
from viaduct.reporting.flame_graph import MAX_BOXES, MAX_DEPTH, MAX_ROWS

from .test_page import Elements

HOSTILE = '"><script>alert(1)</script>'


def html_of(root: FlameNode) -> str:
    html = render_page(Page("x", sections=[Section("s", "", [FlameGraph("Modules", root, "ms", [(0, "forward")])])]))
    return html[html.index("<figure") : html.index("</figure>")]


def sample() -> FlameNode:
    conv = FlameNode("conv1", 6.0, note="2 calls")
    return FlameNode(
        "step", 10.0, [FlameNode("forward", 9.0, [conv, FlameNode("bn1", 3.0)], 0), FlameNode("update", 1.0)]
    )


def test_a_hostile_name_never_becomes_markup():
    html = html_of(FlameNode("step", 1.0, [FlameNode(HOSTILE, 1.0)]))
    assert Elements(html).count("script") == 0
    assert HOSTILE not in html


def test_a_graph_without_time_says_so():
    assert "no data" in html_of(FlameNode("step", 0.0))
    assert 'class="box' not in html_of(FlameNode("step", 0.0))


def test_boxes_lie_within_their_parents_and_beside_each_other():
    boxes = {box.name: box for box in FlameGraph("t", sample()).boxes}
    assert (boxes["conv1"].left, boxes["conv1"].width) == pytest.approx((0.0, 0.6))
    assert (boxes["bn1"].left, boxes["bn1"].width) == pytest.approx((0.6, 0.3))
    assert (boxes["update"].left, boxes["update"].width) == pytest.approx((0.9, 0.1))
    assert boxes["bn1"].depth == 2


def test_a_box_has_the_colour_of_its_parent_unless_it_has_its_own():
    boxes = {
        box.name: box
        for box in FlameGraph("t", FlameNode("a", 2, [FlameNode("b", 1), FlameNode("c", 1, (), 3)], 2)).boxes
    }
    assert (boxes["b"].colour, boxes["c"].colour) == (2, 3)


def test_time_and_share_are_given_as_text_for_screen_readers():
    html = html_of(sample())
    assert 'aria-label="conv1: 6.00\u00a0ms, 60.0\u00a0%; 2 calls"' in html
    rows = re.findall(r"<tr><td[^>]*>(.*?)</td><td[^>]*>(.*?)</td><td[^>]*>(.*?)</td></tr>", html)
    assert ("bn1", "3.00\u00a0ms", "30.0\u00a0%") in rows
    assert len(rows) == 5


def test_thousands_of_small_boxes_are_joined_and_none_is_lost():
    children = [FlameNode(f"module{number}", 1.0, [FlameNode("op", 1.0)]) for number in range(4000)]
    graph = FlameGraph("t", FlameNode("step", 4000.0, children))
    assert len(graph.boxes) <= MAX_BOXES
    assert len(graph.largest_boxes) <= MAX_ROWS
    assert sum(box.width for box in graph.boxes if box.depth == 1) == pytest.approx(1.0)
    assert any(box.name == "4,000 smaller" for box in graph.boxes)


def test_a_very_deep_tree_ends_somewhere():
    node = FlameNode("leaf", 1.0)
    for depth in range(400):
        node = FlameNode(f"level{depth}", 1.0, [node])
    assert FlameGraph("t", node).rows == MAX_DEPTH + 1
