"""Every point is on the chart: zero at the bottom, NaN at the top."""

import math
import re
from dataclasses import replace

import pytest

from viaduct.reporting import Level, Page, Point, Roof, ScatterChart, Section, Span, render_page

from .large_sample import points
from .test_page import Elements


def chart(*values: float, levels=(), spans=()) -> ScatterChart:
    dots = [Point(x, y, "good", f"p{x}") for x, y in enumerate(values)]
    return ScatterChart("t", "x", "y", dots, levels, spans)


def heights(drawn: ScatterChart) -> list[float]:
    return drawn.drawing().data["y"]


def test_zero_is_drawn_below_all_and_nan_and_infinity_above():
    zero, small, large, nan, infinite = heights(chart(0.0, 1e-6, 0.1, math.nan, math.inf))
    assert nan == infinite < large < small < zero


@pytest.mark.parametrize(
    "values", [[0.0], [math.nan], [math.nan, 0.0], [5.0], [5.0, 5.0], [1e-300, 1e300], [-0.5, 0.5]]
)
def test_nothing_falls_off_the_chart(values):
    drawing = chart(*values).drawing()
    assert all(0 <= position <= 1 for axis in ("x", "y") for position in drawing.data[axis])
    assert all(0 <= tick.position <= 1 for tick in drawing.y_ticks)


def test_a_chart_without_points_says_so():
    assert "no data" in render_page(Page("x", sections=[Section("s", "", [chart()])]))


def test_points_of_a_tone_are_one_path():
    html = render_page(Page("x", sections=[Section("s", "", [points(5000)])]))
    dots = re.findall(r'<path class="dots" d="(M[\d.]+ [\d.]+h0[^"]*)" vector', html)
    assert sum(path.count("h0") for path in dots) == 5000
    assert len(dots) == 5
    assert Elements(html).count("circle") == 1, "the mark"


def test_a_level_is_on_the_chart_even_where_no_point_comes_near():
    ((position, label),) = chart(1e-6, 1e-5, levels=[Level(0.1, "limit")]).drawing().levels
    assert 0.8 < position <= 1
    assert label == "limit"


def test_levels_too_close_to_read_share_a_label():
    levels = chart(1e-8, 1.0, levels=[Level(1.0e-3, "a"), Level(1.1e-3, "b"), Level(0.1, "c")]).drawing().levels
    assert [label for _, label in levels] == ["a, b", "c"]


def test_a_name_that_does_not_fit_its_span_is_left_out():
    spans = [Span(0, 1, "a rather long name"), Span(1, 99, "layer1")]
    assert [label for _, _, label, _ in chart(*[1.0] * 100, spans=spans).drawing().spans] == ["", "layer1"]


def test_a_name_that_a_phone_has_no_room_for_is_left_out_there_alone():
    spans = [Span(0, 20, "layer1"), Span(20, 99, "backward")]
    assert [on_phone for *_, on_phone in chart(*[1.0] * 100, spans=spans).drawing().spans] == [True, True]
    spans = [Span(0, 15, "layer1"), Span(15, 99, "backward")]
    assert [(label, on_phone) for _, _, label, on_phone in chart(*[1.0] * 100, spans=spans).drawing().spans] == [
        ("layer1", False),
        ("backward", True),
    ]


def test_a_long_mark_loses_its_middle_and_a_phone_shows_its_first_part():
    marked = replace(chart(1.0), marked=0, mark=f"origin: {'block.' * 30}conv2")
    assert len(marked.mark_text) == 41
    assert marked.mark_text.endswith("block.conv2")
    assert marked.short_mark == "origin"


def test_more_spans_than_one_can_see_are_not_drawn():
    spans = [Span(n, n + 1, "s") for n in range(61)]
    assert chart(*[1.0] * 62, spans=spans).drawing().spans == []


def test_screen_readers_get_the_counts():
    html = render_page(Page("x", sections=[Section("s", "", [points(16)])]))
    assert "16 points: 8 good, 2 bad, 2 flag, 2 refused" in html


def test_roofs_and_points_share_two_log_scales():
    roof = Roof("memory 20 GB/s", [(0.1, 2e9), (10, 2e11)])
    chart = ScatterChart(
        "Roofline", "x", "y", [Point(1.0, 2e10, "good", "mm", text="20 GFLOP/s")], roofs=[roof], log_x=True
    )
    drawing = chart.drawing()
    corners = [float(number) for number in re.findall(r"[-\d.]+", drawing.roofs[0].path)]
    x, y = drawing.data["x"][0] * 1000, drawing.data["y"][0] * 1000
    assert x == pytest.approx((corners[0] + corners[2]) / 2, abs=1)
    assert y == pytest.approx((corners[1] + corners[3]) / 2, abs=1)
    assert drawing.data["text"] == ["20 GFLOP/s"]
    assert "memory 20 GB/s" in render_page(Page("x", sections=[Section("s", "", [chart])]))
