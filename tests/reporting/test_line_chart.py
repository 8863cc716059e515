"""Lines stay honest: gaps are gaps, spikes survive, and odd data still makes a chart."""

import json
import math
import re
import time

import numpy as np
import pytest

from viaduct.reporting import LineChart, Page, RunCurves, Section, Series, render_page

INFINITE = math.inf
NOTHING = math.nan


def chart(*series: Series, **options: bool) -> LineChart:
    return LineChart("Loss", "step", "loss", series, **options)


def html_of(*series: Series, **options: bool) -> str:
    return render_page(Page("x", sections=[Section("s", "", [chart(*series, **options)])]))


def labels(ticks) -> list[str]:
    return [tick.label for tick in ticks]


@pytest.mark.parametrize("hole", [NOTHING, INFINITE, -INFINITE, None])
def test_a_value_that_is_not_finite_breaks_the_line(hole):
    drawing = chart(Series("a", [1, 2, 3, 4, 5], [1, 2, hole, 4, 5])).drawing()
    assert drawing.lines[0].path.count("M") == 2
    assert drawing.views[0].note == "Gaps in the lines: 1 value is NaN or infinite."
    assert "nan" not in drawing.lines[0].path


def test_a_note_counts_the_missing_values():
    assert "2 values are NaN or infinite" in html_of(Series("a", [1, 2, 3], [NOTHING, 1, INFINITE]))


def test_a_point_alone_between_two_gaps_is_still_seen():
    drawing = chart(Series("a", [1, 2, 3, 4, 5], [1, 2, 3, NOTHING, 4])).drawing()
    assert len(drawing.lines[0].dots) == 1


def test_one_point_is_a_dot_in_the_middle():
    (dot,) = chart(Series("a", [7], [0.5])).drawing().lines[0].dots
    assert dot == pytest.approx((0.5, 0.5))


@pytest.mark.parametrize("series", [[], [Series("a", [], [])], [Series("a", [1, 2], [NOTHING, NOTHING])]])
def test_a_chart_without_data_says_so(series):
    assert "no data</text>" in html_of(*series)


def test_an_empty_series_does_not_hide_its_neighbour():
    html = html_of(Series("a", [], []), Series("b", [1, 2], [3, 4]))
    assert "no data</span>" in html
    assert 'class="line-1" d="M' in html


@pytest.mark.parametrize("value", [0, 0.1, -5, 1e12, 1e-12])
def test_a_constant_runs_through_the_middle(value):
    drawing = chart(Series("a", [1, 2, 3], [value] * 3)).drawing()
    assert drawing.lines[0].path == "M0.0 500.0L500.0 500.0L1000.0 500.0"


def test_series_with_different_steps_share_one_axis():
    drawing = chart(Series("a", [0, 10], [1, 1]), Series("b", [5, 20], [2, 2])).drawing()
    assert drawing.lines[0].path.startswith("M0.0 ")
    assert "L500.0 " in drawing.lines[0].path
    assert drawing.lines[1].path.startswith("M250.0 ")


def test_a_long_run_is_thinned_and_keeps_its_spike():
    y = np.sin(np.arange(100_000) / 900)
    y[33_333], y[77_777] = 40.0, -30.0
    began = time.process_time()
    drawing = chart(Series("a", np.arange(100_000), y)).drawing()
    assert time.process_time() - began < 5
    shown = drawing.data["series"][0]
    assert len(shown["x"]) <= 1500
    assert (max(shown["y"]), min(shown["y"])) == (40.0, -30.0)
    assert (shown["x"][0], shown["x"][-1]) == (0, 99_999)
    assert drawing.lines[0].path.count("L") == len(shown["x"]) - 1


def test_a_single_nan_among_a_hundred_thousand_still_breaks_the_line():
    y = np.ones(100_000)
    y[40_000] = NOTHING
    drawing = chart(Series("a", np.arange(100_000), y)).drawing()
    assert drawing.lines[0].path.count("M") == 2
    assert len(drawing.data["series"][0]["x"]) <= 1500


def test_a_short_run_is_not_thinned():
    assert len(chart(Series("a", range(1500), range(1500))).drawing().data["series"][0]["x"]) == 1500


def test_embedded_data_is_json_that_cannot_close_its_script():
    html = html_of(Series("</script><b>", [1, 2], [NOTHING, 2]), Series("b", [1], [1]))
    (embedded,) = re.findall(r'<script type="application/json">(.*?)</script>', html, re.DOTALL)
    data = json.loads(embedded, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert data["series"][0] == {"name": "</script><b>", "x": [1, 2], "y": [None, 2.0]}


def test_a_logarithmic_axis_leaves_out_what_is_not_above_zero():
    drawing = chart(Series("a", [1, 2, 3, 4, 5], [0, 1, 10, 100, -1]), log_y=True).drawing()
    assert "1 value is zero, 1 value is negative, which a log scale cannot show" in drawing.views[0].note
    assert labels(drawing.views[0].y_ticks) == ["1", "10", "100"]


def scales(*values: float | None, **options: bool) -> list[bool]:
    """Return True or False for each scale of a chart (log or linear), the one that is shown first in front."""
    return [view.log for view in chart(Series("a", range(len(values)), values), **options).drawing().views]


def test_values_that_span_decades_open_on_a_log_scale_and_others_do_not():
    assert scales(2.3, 0.02, 0.01) == [True, False]
    assert scales(2.3, 0.1) == [False, True], "worth a button"
    assert scales(2.3, 1.1) == [False]
    assert scales(1e-300, 1e299)[0]


def test_a_negative_value_keeps_the_scale_linear_and_a_zero_is_named():
    assert scales(-0.1, 0.001, 2.3) == [False]
    assert scales(0, 0, 0) == [False]
    drawing = chart(Series("a", [1, 2, 3], [0, 0.001, 2.3])).drawing()
    assert [view.note for view in drawing.views] == [
        "Gaps in the lines: 1 value is zero, which a log scale cannot show.",
        "",
    ]
    assert drawing.data["series"][0]["y"][0] == 0, "the read-out still says it"


def test_a_share_is_never_drawn_on_a_log_scale():
    assert scales(0.1, 99.0, log_y=False) == [False]


def test_a_log_scale_is_named_and_the_other_one_is_ready_but_hidden():
    html = html_of(Series("a", [1, 2], [1e-5, 2.0]))
    assert html.count('class="scale-name">log scale<') == 1
    assert re.findall(r'class="view" [^>]*?(hidden)?>', html) == ["", "hidden"]
    assert "Log scale. a: 2 points" in html


def test_a_value_too_small_for_any_axis_is_drawn_as_zero():
    drawing = chart(Series("a", [1, 2, 3], [5e-324, 1.0, 1e299])).drawing()
    assert drawing.views[0].log
    assert "1 value is zero" in drawing.views[0].note


def test_the_unit_is_beside_the_name_of_the_axis():
    part = LineChart("Top-1", "step", "right", [Series("a", [1], [81.25])], unit="%")
    assert ">right (%)</p>" in render_page(Page("x", sections=[Section("s", "", [part])]))


def test_epochs_have_no_halves():
    assert labels(chart(Series("a", [1, 2, 3], [1, 2, 3])).drawing().x_ticks) == ["1", "2", "3"]


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 1, 1e9, 1e299])
@pytest.mark.parametrize("log", [False, True])
def test_any_finite_scale_gives_a_few_distinct_ticks(scale, log):
    drawing = chart(Series("a", [1, 2, 3], [scale, 2 * scale, 7 * scale]), log_y=log).drawing()
    assert 3 <= len(drawing.views[0].y_ticks) <= 8
    assert len(set(labels(drawing.views[0].y_ticks))) == len(drawing.views[0].y_ticks)
    assert all(-0.001 <= tick.position <= 1.001 for tick in drawing.views[0].y_ticks)


def test_more_series_than_colours_are_distinguished_by_dashes():
    drawing = chart(*[Series(str(n), [1, 2], [n, n]) for n in range(12)]).drawing()
    assert len({(line.colour, line.dashed) for line in drawing.lines}) == 12


def test_screen_readers_get_the_numbers_of_the_chart():
    assert "training: 3 points from 0.5 to 2, last 0.5" in html_of(Series("training", [1, 2, 3], [2, 1, 0.5]))


def test_x_and_y_of_different_length_are_refused():
    with pytest.raises(ValueError, match="'loss' has 2 x for 3 y"):
        Series("loss", [1, 2], [1, 2, 3])


def test_an_axis_covers_the_values_in_includes():
    drawing = LineChart(
        "CPU", "s", "cpu", [Series("cpu 0", [0, 1], [97, 98])], log_y=False, includes=(0, 100)
    ).drawing()
    ticks = labels(drawing.views[0].y_ticks)
    assert (ticks[0], ticks[-1]) == ("0", "100")


def test_what_an_axis_includes_is_no_data():
    assert "no data</text>" in render_page(
        Page("x", sections=[Section("s", "", [LineChart("t", "x", "y", [], includes=(0, 1))])])
    )


def test_dots_are_not_joined_and_leave_no_gaps_to_explain():
    drawing = chart(Series("trials", [1, 2, 3], [0.5, 0.7, 0.6], dots=True)).drawing()
    assert drawing.lines[0].path == ""
    assert len(drawing.lines[0].dots) == 3
    assert drawing.views[0].note == ""


def test_every_run_has_a_line_and_an_entry_that_name_it() -> None:
    series = [Series("a", [1, 2, 3], [3.0, 2.0, 1.0]), Series("<i>", [1, 2], [2.0, 1.0]), Series("single", [2], [1.5])]
    text = render_page(Page("t", sections=[Section("s", "", [RunCurves("Loss", "step", "loss", series)])]))
    assert text.count('<path class="line-') == 2
    assert text.count("<circle") == 1
    for name in ("a", "&lt;i&gt;", "single"):
        assert f'<li class="line-{["a", "&lt;i&gt;", "single"].index(name)}" data-run="{name}">' in text


def test_a_run_without_values_is_listed_as_such() -> None:
    text = render_page(Page("t", sections=[Section("s", "", [RunCurves("L", "step", "y", [Series("a", [], [])])])]))
    assert "no data" in text
