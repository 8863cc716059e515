"""Curves of many runs."""

from __future__ import annotations

from viaduct.reporting import Page, RunCurves, Section, Series, render_page


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
