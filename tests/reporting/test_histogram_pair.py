"""Two shapes over one range."""

import pytest

from viaduct.reporting import BarChart, HistogramPair, Page, Section, render_page


def test_both_sides_are_drawn_over_the_same_bins():
    pair = HistogramPair("h", -1, 1, [0, 10], [10, 0])
    assert pair.area == "M0 1000V1000H500.0V0H1000.0V1000Z"
    assert pair.line == "M0 0H500.0V1000H1000.0"
    assert pair.ticks == ["-1", "0", "1"]


def test_a_bin_of_one_is_seen_beside_a_bin_of_a_million():
    assert "V950H1000.0" in HistogramPair("h", 0, 1, [1_000_000, 1], [0, 0]).area


def test_sides_of_different_bins_are_refused():
    with pytest.raises(ValueError, match="2 bins against 1"):
        HistogramPair("h", 0, 1, [1, 2], [1])


def test_nothing_counted_is_reported():
    page = Page("x", sections=[Section("s", "", [HistogramPair("h", 0, 1, [0], [0]), BarChart("b", [], [])])])
    html = render_page(page)
    assert "no values" in html
    assert "nothing counted" in html


def test_a_histogram_and_bars_may_be_side_by_side():
    section = Section("s", "", [HistogramPair("h", 0, 1, [1], [1]), BarChart("b", ["x"], [1])])
    assert len(section.groups) == 1
