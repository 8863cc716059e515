"""Data of a large table for the browser: compact, exact enough to sort by, and harmless."""

import json
import math
import re

import numpy as np
import pytest

from viaduct.reporting import BarChart, DataColumn, Facts, Link, Page, Section, Table, VirtualTable, render_page
from viaduct.reporting.virtual_table import WRITTEN_ROWS, column_to_json, format_value, number_to_json

from .large_sample import HOSTILE, large_table
from .test_page import Elements


def page_of(table: VirtualTable) -> str:
    return render_page(Page("x", sections=[Section("s", "", [table])]))


def data_of(html: str, kind: str):
    return json.loads(re.search(rf'<script type="application/json" class="{kind}">(.*?)</script>', html, re.S)[1])


def test_a_hostile_name_never_becomes_markup():
    elements = Elements(page_of(large_table(50)))
    assert elements.count("script") == 3, "the page's own, the rows, the details"
    assert not [attributes for tag, attributes in elements.tags if tag == "img" and attributes.get("src") == "x"]


def test_a_hostile_name_arrives_as_it_was():
    rows = data_of(page_of(large_table(50)), "rows")
    assert HOSTILE in rows["columns"][1]["words"]


def test_every_value_comes_back_from_the_json():
    table = large_table(200)
    rows = data_of(page_of(table), "rows")
    for column, record in zip(table.columns, rows["columns"], strict=True):
        sent = record.get("numbers") or [record["words"][position] for position in record["places"]]
        for value, came in zip(column.values, sent, strict=True):
            if isinstance(value, float) and math.isfinite(value):
                assert came == pytest.approx(value, rel=1e-8)
            else:
                assert came == (value if isinstance(value, int) else None if value is None else format_value(value))


def test_a_text_is_stored_once():
    record = column_to_json(DataColumn("c", ["a", "b", "a", "a"]))
    assert record["words"] == ["a", "b"]
    assert record["places"] == [0, 1, 0, 0]


def test_the_json_holds_nothing_that_a_browser_refuses():
    html = page_of(VirtualTable("rows", [DataColumn("c", [math.nan, math.inf, -math.inf, None, 1.5])]))
    data = re.search(r'class="rows">(.*?)</script>', html)[1]
    parsed = json.loads(data, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert parsed["columns"][0]["numbers"] == ["NaN", "Inf", "-Inf", None, 1.5]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (math.nan, "NaN"),
        (-math.inf, "-Inf"),
        (0.0, "0"),
        (-0.0, "0"),
        (3, "3"),
        (1.0, "1"),
        (0.25, "0.250000"),
        (4.2e-9, "4.200e-9"),
        (-2.5e12, "-2.500e12"),
        (np.float32(0.5), "0.500000"),
        ("(2;3)", "(2;3)"),
    ],
)
def test_numbers_are_short_and_never_zero_by_rounding(value, text):
    assert format_value(value) == text


def test_a_cosine_near_one_stays_below_one():
    assert number_to_json(0.99999999) == 0.99999999


def test_without_scripts_the_first_rows_are_there_and_the_others_are_named():
    html = page_of(large_table(500))
    body = html.split("<tbody>")[1].split("</tbody>")[0]
    assert body.count("<tr>") == WRITTEN_ROWS
    assert f"The first {WRITTEN_ROWS} of 500 rows" in html


def test_a_heading_may_break_between_its_words_only():
    assert "Mean<wbr>Relative<wbr>Error" in page_of(VirtualTable("rows", [DataColumn("MeanRelativeError", [1.0])]))


def test_a_table_without_rows_says_so():
    assert "no rows" in page_of(VirtualTable("rows", [DataColumn("a", [])]))


def test_a_verdict_has_a_sign_beside_its_colour():
    html = page_of(VirtualTable("rows", [DataColumn("Result", ["bad"], tones={"bad": "bad"})]))
    assert '<span class="sign" aria-hidden="true">✗</span>bad' in html


def test_details_are_the_json_of_their_parts():
    blocks = [Facts({"n": 3}), Link("see", "#rows-1"), BarChart("b", ["x"], [2]), Table(["c"], [[0.5]], "t")]
    html = page_of(VirtualTable("rows", [DataColumn("a", [1, 2])], details={1: blocks}))
    assert [block["kind"] for block in data_of(html, "details")["1"]] == ["facts", "link", "bars", "table"]


def test_the_order_given_is_the_order_shown_and_the_rows_keep_their_numbers():
    columns = [DataColumn("c", ["first", "second", "third"])]
    html = page_of(VirtualTable("rows", columns, order=[2, 0, 1]))
    assert re.findall(r"<td>(\w+)</td>", html) == ["third", "first", "second"]
    data = data_of(html, "rows")
    assert (data["order"], data["columns"][0]["words"]) == ([2, 0, 1], ["first", "second", "third"])


@pytest.mark.parametrize("order", [[0], [0, 0], [1, 2]])
def test_an_order_that_loses_a_row_is_refused(order):
    with pytest.raises(ValueError, match="each of the 2 rows once"):
        VirtualTable("rows", [DataColumn("c", ["a", "b"])], order=order)


def test_columns_of_different_length_are_refused():
    with pytest.raises(ValueError, match=r"columns differ in length: \{'a': 1, 'b': 2\}"):
        VirtualTable("rows", [DataColumn("a", [1]), DataColumn("b", [1, 2])])


@pytest.mark.parametrize("name", ["", "Rows", 'x"]', "a-b"])
def test_a_name_that_would_not_work_in_an_address_is_refused(name):
    with pytest.raises(ValueError, match="small letters and digits"):
        VirtualTable(name, [])


def test_the_script_comes_only_with_pages_that_need_it():
    assert "figure.virtual" in page_of(large_table(3))
    assert "figure.virtual" not in render_page(Page("x", sections=[Section("s", "", [Table(["a"], [[1]])])]))


def test_a_column_may_say_how_many_decimals_its_numbers_have():
    html = page_of(VirtualTable("rows", [DataColumn("ms", [1234.5, 2, None, math.inf], decimals=2)]))
    assert data_of(html, "rows")["columns"][0]["decimals"] == 2
    assert re.findall(r"<td[^>]*>(.*?)</td>", html) == ["1,234.50", "2.00", "–", "Inf"]
