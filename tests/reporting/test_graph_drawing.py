"""The layout: producers above consumers, boxes and lines clear of each other, whatever the edges are."""

import itertools
import random

import pytest

from viaduct.reporting import GraphDrawing, Node, Page, Section, render_page
from viaduct.reporting.graph_drawing import (
    HEIGHT,
    WIDTH,
    assign_layers,
    order_layers,
    place_nodes,
    remove_cycles,
)
from viaduct.reporting.texts import shorten_name

from .large_sample import graph
from .test_page import Elements


def laid_out(names: str, *edges: str):
    nodes = [Node(name, "good") for name in names]
    return GraphDrawing("g", nodes, [(edge[0], edge[1]) for edge in edges]).drawing()


def boxes(drawing) -> dict[str, tuple[float, float]]:
    return {box.node.name: (box.x, box.y) for box in drawing.boxes}


def test_producers_are_above_their_consumers():
    positions = boxes(laid_out("abcd", "ab", "bc", "ad", "dc"))
    for source, target in ("ab", "bc", "ad", "dc"):
        assert positions[source][1] < positions[target][1]


def test_an_edge_past_a_layer_does_not_run_through_a_box():
    drawing = laid_out("abcd", "ab", "bc", "cd", "ad")
    path = dict(drawing.lines)["a", "d"]
    lanes = [float(step.split()[-2]) for step in path.split("C")[1:-1] for step in [step.split("V")[0]]]
    inner = [boxes(drawing)[name] for name in "bc"]
    for lane, (x, _) in itertools.product(lanes, inner):
        assert not x <= lane <= x + WIDTH


@pytest.mark.parametrize("seed", range(20))
def test_no_two_boxes_overlap(seed):
    rng = random.Random(seed)
    names = [chr(97 + n) for n in range(14)]
    edges = [f"{a}{b}" for a, b in itertools.permutations(names, 2) if rng.random() < 0.12]
    drawing = laid_out("".join(names), *edges)
    for first, second in itertools.combinations(boxes(drawing).values(), 2):
        assert abs(first[0] - second[0]) >= WIDTH or abs(first[1] - second[1]) >= HEIGHT
    assert all(x >= 0 and x + WIDTH <= drawing.width for x, _ in boxes(drawing).values())
    assert all(y >= 0 and y + HEIGHT <= drawing.height for _, y in boxes(drawing).values())


def test_a_circle_is_cut_where_it_closes():
    assert remove_cycles("abc", [("a", "b"), ("b", "c"), ("c", "a"), ("a", "a")]) == [("a", "b"), ("b", "c")]


def test_edges_of_unknown_nodes_and_doubled_edges_are_left_out():
    assert remove_cycles("ab", [("a", "b"), ("a", "z"), ("a", "b")]) == [("a", "b")]


def test_neighbours_are_ordered_so_that_lines_need_not_cross():
    layers, chains = assign_layers("abxy", [("a", "y"), ("b", "x")])
    positions = place_nodes(order_layers(layers, chains))
    assert (positions["a"][0] < positions["b"][0]) == (positions["y"][0] < positions["x"][0])


def test_a_long_name_keeps_both_ends_and_its_tooltip():
    assert shorten_name("layer3.0.downsample.1.weight", 21) == "layer3.0.d…e.1.weight"
    html = render_page(Page("x", sections=[Section("s", "", [graph()])]))
    assert f"<title>{'a' * 80}</title>" in html
    assert html.count("a" * 80) == 1


def test_hostile_names_stay_text_and_only_nodes_with_an_address_are_links():
    elements = Elements(render_page(Page("x", sections=[Section("s", "", [graph()])])))
    assert elements.count("script") == 1
    assert [a["href"] for tag, a in elements.tags if tag == "a" and "node" in a.get("class", "")] == [
        "#rows-1",
        "#rows-7",
        "#rows-11",
    ]


def test_a_graph_without_nodes_says_so():
    assert "nothing to draw" in render_page(Page("x", sections=[Section("s", "", [GraphDrawing("g", [], [])])]))
