"""Bars by name: a value of 0 has no bar but the text `equal`, one that is not finite the text `no measure`."""

import math
import re

import pytest

from viaduct.reporting import BarSeries, NamedBars, Page, Section, render_page
from viaduct.reporting.named_bars import find_decades


def html_of(part: NamedBars) -> str:
    html = render_page(Page("x", sections=[Section("s", "", [part])]))
    return html[html.index("<figure") : html.index("</figure>")]


def test_a_difference_of_zero_is_called_equal_and_has_no_bar():
    html = html_of(NamedBars("t", ["conv1", "fc"], [BarSeries("gradient", [0.0, 1e-7])]))
    assert html.count("--length") == 1
    assert ">equal<" in html
    assert "10⁻⁷" in html
    assert "0.0" not in re.sub(r"--length: [0-9.]+", "", html)


def test_every_name_is_there_and_what_is_missing_is_not():
    html = html_of(NamedBars("t", ["conv1", "<b>"], [BarSeries("a", [None, math.inf]), BarSeries("b", [0.5, None])]))
    assert re.findall(r"<dt>(.*?)</dt>", html) == ["conv1", "&lt;b&gt;"]
    assert html.count("<dd") == 2
    assert "no measure" in html


def test_bars_beyond_a_limit_have_a_sign_beside_their_colour():
    html = html_of(NamedBars("t", ["a", "b"], [BarSeries("g", [1e-3, 1e-3], frozenset([1]))]))
    assert html.count("✗ ") == 1
    assert html.count("beyond what is allowed") == 2


def test_equal_values_alone_have_no_scale():
    assert "log scale" not in html_of(NamedBars("t", ["a"], [BarSeries("g", [0.0])]))


@pytest.mark.parametrize("values", [[1e-300, 1e300], [1.0], [1e-3, 1e-3], [0.2, 0.9]])
def test_every_bar_has_a_length_and_stays_within_its_track(values):
    low, high = find_decades(values)
    assert all(low < math.log10(value) <= high for value in values)


def test_values_without_names_are_refused():
    with pytest.raises(ValueError, match="2 values for 1 names"):
        NamedBars("t", ["a"], [BarSeries("g", [1.0, 2.0])])
