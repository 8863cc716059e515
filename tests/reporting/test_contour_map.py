"""Contour maps: what was measured is drawn, what is far from it is not."""

from __future__ import annotations

import numpy as np

from viaduct.reporting.contour_map import ContourAxis, ContourMap, Measurement, find_bands
from viaduct.reporting.page import Page, Section, render_page

X = ContourAxis("rate", 0.001, 1.0, log=True)
Y = ContourAxis("kind", 0, 1, names=("plain", "<b>bold</b>"))


def test_nothing_is_drawn_where_no_measurement_is_near() -> None:
    bands = find_bands(np.array([[0.1, 0.1], [0.15, 0.1], [0.1, 0.15]]), np.array([1.0, 2.0, 3.0]))
    assert bands[0, 0] >= 0
    assert bands[-1, -1] == -1


def test_a_field_without_differences_has_no_bands() -> None:
    points = [Measurement(0.1, index, 5.0, "") for index in (0, 1, 0)]
    assert ContourMap("title", X, Y, "top1", points).cells == []


def test_the_best_value_lies_in_the_deepest_band() -> None:
    points = [Measurement(0.001, 0, 10.0, "a"), Measurement(1.0, 0, 20.0, "b"), Measurement(0.03, 1, 90.0, "c")]
    chart = ContourMap("title", X, Y, "top1", points, best=2)
    assert max(cell.opacity for cell in chart.cells) == 0.8
    assert chart.dots[2][0] == (np.log10(0.03) + 3) / 3
    assert [tick.label for tick in chart.y.ticks()] == ["plain", "<b>bold</b>"]


def test_labels_are_escaped_on_the_page_and_no_data_is_reported() -> None:
    points = [Measurement(0.1, 0, 1.0, "<script>alert(1)</script>")]
    for chart in (ContourMap("title", X, Y, "top1", points), ContourMap("title", X, Y, "top1", [])):
        page = render_page(Page("page", sections=[Section("s", "", [chart])]))
        assert "<script>alert(1)" not in page
        assert "<b>bold" not in page
    assert "no data" in page
