"""The rows of a comparison as the page's table."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from comparison.drift_sample import (
    measure_kind,
    sample_rows,
)
from viaduct.comparison import report_rows


def test_the_origin_keeps_its_details_however_many_rows_are_bad():
    rows = [replace(row, result="bad", follows_from="") for row in sample_rows(12, most=5000)]
    last = len(rows) - 1
    assert last in report_rows.select_detailed(rows, last)


def test_distances_are_joined_until_the_bars_are_few():
    bars = report_rows.draw_distances(measure_kind("bad", 3))
    assert bars.labels[0] == "equal"
    assert len(bars.labels) <= report_rows.MAX_BARS + 1
    assert sum(bars.counts) == 256


@pytest.mark.parametrize(
    ("start", "end", "name"),
    [(0, 1, "1"), (1, 2, "2–3"), (2, 4, "4–15"), (13, 14, "2¹³ to 2¹⁴"), (60, 64, "2⁶⁰ to 2⁶⁴")],
)
def test_a_distance_is_named_by_its_ends(start, end, name):
    assert report_rows.name_bin(start, end) == name


def test_a_histogram_without_a_finite_range_is_left_out():
    odd = replace(measure_kind("good", 1), histogram=replace(measure_kind("good", 1).histogram, low=math.nan))
    assert report_rows.draw_values(odd, ("a", "b")) is None
