"""Characters that are invisible, reverse the text or control a terminal are written out."""

import json
import re

import pytest

from viaduct.reporting import Callout, Code, Facts, LineChart, Page, Remark, Section, Series, Table, render_page
from viaduct.reporting.texts import allow_breaks, dump_json, escape_invisible

TURNED = "photo\u202egpj.exe"


@pytest.mark.parametrize(
    "text", ["plain", "tab\tand\nline", "日本語 émoji 😀", "\\u202e as it was typed", "family 👩\u200d👩"]
)
def test_text_that_hides_nothing_stays_as_it_is(text):
    assert escape_invisible(text) == text
    assert json.loads(dump_json([text])) == [text]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (TURNED, "photo\\u202egpj.exe"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("a\rb\x08c\x0cd\x7f", "a\\rb\\x08c\\x0cd\\x7f"),
        ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
        ("not unicode \udc80", "not unicode \\x80"),
        ("\\\u202e\\u202e", "\\\\u202e\\u202e"),
    ],
)
def test_what_hides_is_written_out_in_html_and_in_json(text, shown):
    assert escape_invisible(text) == shown
    assert json.loads(dump_json({text: [text]})) == {shown: [shown]}


def test_no_part_of_a_page_lets_a_name_turn_the_line_around():
    parts = [
        Table([TURNED], [[TURNED]], TURNED),
        Facts({TURNED: TURNED}),
        Code(TURNED, TURNED),
        LineChart(TURNED, TURNED, TURNED, [Series(TURNED, [1], [1])]),
    ]
    lead = [Callout("bad", TURNED, [Remark(TURNED, TURNED)])]
    html = render_page(Page(TURNED, TURNED, sections=[Section(TURNED, TURNED, parts)], lead=lead, kind=TURNED))
    assert "\u202e" not in html
    assert "photo\\u202egpj.exe" in html
    assert not re.search(r"(?<!\\)\\u202e", html[html.index('type="application/json"') : html.index("<script>\n")])


def test_a_long_name_may_break_behind_its_separators_and_is_still_escaped():
    html = str(allow_breaks("model/layer3.0/<conv2>/kernel_initializer and more"))
    assert html == "model/<wbr>layer3.<wbr>0/<wbr>&lt;conv2&gt;/<wbr>kernel_<wbr>initializer and more"
    assert str(allow_breaks("layer3.0.bn2")) == "layer3.0.bn2"
