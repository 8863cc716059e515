"""Bars of layers: what was not measured is no zero, spikes survive, and groups share one scale."""

import json
import re

import pytest

from viaduct.reporting import BarGroup, Page, Section, StackedBars, render_page
from viaduct.reporting.stacked_bars import MAX_BARS, MAX_GROUPS

from .test_page import Elements


def chart(*groups: BarGroup, layers: tuple[str, ...] = ("a", "b")) -> StackedBars:
    return StackedBars("Steps", "step", "time", layers, groups, unit="ms", group_label="rank")


def html_of(*groups: BarGroup) -> str:
    html = render_page(Page("x", sections=[Section("s", "", [chart(*groups)])]))
    return html[html.index("<figure") : html.index("</figure>")]


def data_of(html: str):
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', html, re.S)[1])


def steps(count: int, value: float = 10.0, name: str = "rank 0") -> BarGroup:
    return BarGroup(name, [str(number) for number in range(count)], [[value] * count, [1.0] * count])


def test_what_was_not_measured_is_no_zero():
    html = html_of(BarGroup("", ["0", "1"], [[None, 2.0], [1.0, 1.0]]))
    assert data_of(html)["views"][0]["layers"] == [[None, 2.0], [1.0, 1.0]]


def test_a_chart_without_bars_says_so():
    assert "no data" in html_of()
    assert "no data" in html_of(BarGroup("", [], [[], []]))


def test_a_hostile_name_never_becomes_markup():
    html = html_of(BarGroup("<script>alert(1)</script>", ["<b>"], [[1.0], [1.0]]))
    assert Elements(html).count("script") == 1, "the chart's data"


def test_layers_are_stacked():
    (view,) = chart(BarGroup("", ["0"], [[1.0], [3.0]])).views
    top_of_first, bottom_of_second = (
        view.paths[0].split("V")[1].split("h")[0],
        view.paths[1].split("h")[0].split(" ")[1],
    )
    assert top_of_first == bottom_of_second


def test_a_single_long_step_survives_among_thousands():
    values = [10.0] * 5000
    values[3333] = 30.0
    group = BarGroup("", [str(number) for number in range(5000)], [values, [0.0] * 5000])
    (view,) = chart(group).views
    assert len(view.data["labels"]) == MAX_BARS
    assert max(view.data["longest"]) == 30.0
    assert view.marks
    assert "mean of about 28 neighbours" in view.note


def test_a_bar_far_beyond_the_others_is_cut_and_named():
    values = [10.0] * 50
    values[7] = 5000.0
    group = BarGroup("", [f"step {number}" for number in range(50)], [values, [0.0] * 50])
    drawn = chart(group)
    assert drawn.axis.high < 20
    assert "beyond the chart (▲), the longest at step 7: 5,000" in drawn.views[0].note


def test_groups_share_one_scale():
    drawn = chart(steps(3), steps(3, 100.0, "rank 1"))
    assert drawn.axis.high == pytest.approx(1.06 * 101)
    assert [view.name for view in drawn.views] == ["rank 0", "rank 1"]


def test_only_one_group_is_shown_at_first_and_too_many_are_counted():
    html = html_of(*(steps(2, name=f"rank {number}") for number in range(MAX_GROUPS + 3)))
    assert html.count('class="view"') == MAX_GROUPS
    assert len(re.findall(r'class="view" [^>]* hidden>', html)) == MAX_GROUPS - 1
    assert "3 more are not drawn" in html


def test_layers_and_labels_have_to_fit():
    with pytest.raises(ValueError, match="1 layers for 2 names"):
        chart(BarGroup("g", ["0"], [[1.0]]))
    with pytest.raises(ValueError, match="2 labels"):
        chart(BarGroup("g", ["0", "1"], [[1.0], [2.0]]))


def test_labels_under_the_bars_are_evenly_spaced():
    (view,) = chart(steps(47)).views
    assert [tick.label for tick in view.x_ticks] == ["0", "5", "10", "15", "20", "25", "30", "35", "40", "45"]
