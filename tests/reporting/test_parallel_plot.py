"""Parallel axes: positions of values, missing values, and escaped names."""

from __future__ import annotations

import pytest

from viaduct.reporting import Page, ParallelPlot, PlotAxis, Section, render_page


def test_axes_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="has 1 values for 2 runs"):
        ParallelPlot("p", ["a", "b"], [PlotAxis("x", [1])])


def test_a_run_without_a_value_passes_below_all_others() -> None:
    axis = PlotAxis("x", [1.0, None, 2.0])
    assert axis.compute_height(None) == 0.0
    assert axis.compute_height(1.0) > 0.05
    assert (0.0, "none") in axis.ticks


def test_numbers_over_decades_are_on_a_log_scale() -> None:
    axis = PlotAxis("lr", [0.01, 0.1, 1.0])
    assert axis.is_log
    assert [axis.compute_height(value) for value in axis.values] == pytest.approx([0, 0.5, 1])
    assert not PlotAxis("batch", [64, 128, 256]).is_log
    assert not PlotAxis("warmup", [0, 0.1, 100]).is_log


def test_text_and_booleans_are_categories() -> None:
    axis = PlotAxis("nesterov", [True, False, True])
    assert not axis.is_numeric
    assert {axis.compute_height(True), axis.compute_height(False)} == {0.0, 1.0}
    assert not PlotAxis("mixed", ["auto", 3]).is_numeric


def test_a_single_value_is_in_the_middle() -> None:
    assert PlotAxis("x", [5, 5]).compute_height(5) == 0.5


def test_the_page_holds_a_line_for_each_run_and_escapes_names() -> None:
    axes = [PlotAxis("optimizer.lr", [0.1, 0.2]), PlotAxis("top-1", [90.0, None], "%")]
    page = Page("t", sections=[Section("s", "", [ParallelPlot("Plot", ["<b>", "b</script>"], axes)])])
    text = render_page(page)
    assert 'data-run="&lt;b&gt;"' in text
    assert "b</script>" not in text
    assert text.count("<path data-run=") == 2
    assert 'class="unknown"' in text


def test_nothing_to_draw_is_reported() -> None:
    assert "nothing to draw" in render_page(Page("t", sections=[Section("s", "", [ParallelPlot("p", [], [])])]))
