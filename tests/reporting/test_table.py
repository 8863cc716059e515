"""Type of a table's column, which decides its order and alignment."""

import math

import numpy as np
import pytest

from viaduct.reporting import Page, Section, Table, Value, render_page


def column(*values: object):
    return Table(["c"], [[value] for value in values]).drawing().columns[0]


def texts(*values: object) -> list[str]:
    return [cell.text for cell in column(*values).cells]


def test_a_text_among_numbers_makes_the_column_text():
    assert not column(1, "n/a", 3).numeric


def test_quantities_in_different_units_are_not_compared_as_numbers():
    assert not column("3 min", "2 h").numeric


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        ([3, 20, 100], [3, 20, 100]),
        (["95.3 %", "8.1 %"], [95.3, 8.1]),
        (["1,204 img/s", "990 img/s"], [1204, 990]),
        ([np.float32(0.5), np.int64(2)], [0.5, 2]),
        ([math.inf, 1.5], [math.inf, 1.5]),
    ],
)
def test_numbers_are_sorted_as_numbers(values, numbers):
    found = column(*values)
    assert found.numeric
    assert [cell.number for cell in found.cells] == numbers


@pytest.mark.parametrize("nothing", [None, math.nan, np.float32("nan")])
def test_a_missing_value_is_a_dash_and_leaves_the_column_numeric(nothing):
    found = column(2, nothing, 1)
    assert found.numeric
    assert [cell.missing for cell in found.cells] == [False, True, False]
    assert found.cells[1].text == "–"


def test_a_column_of_nothing_is_drawn():
    assert texts(None, None) == ["–", "–"]


def test_numbers_under_each_other_have_the_same_decimals():
    assert texts(2.3, 0.46, 0.0766667) == ["2.3000", "0.4600", "0.0767"]


def test_counts_are_set_in_thousands_without_decimals():
    assert texts(50_000, 128.0) == ["50,000", "128"]


def test_very_small_numbers_are_not_written_as_zero():
    assert texts(2.5e-05, 0.1) == ["2.5×10⁻⁵", "10⁻¹"]


def test_infinity_reaches_the_script_in_its_own_spelling():
    assert [cell.order for cell in column(math.inf, -math.inf, 1).cells] == ["Infinity", "-Infinity", "1.0"]
    assert texts(math.inf, -math.inf, 0.5) == ["∞", "−∞", "0.5"]


def test_an_answer_is_not_a_number():
    assert texts(True, False, np.True_) == ["yes", "no", "yes"]
    assert not column(True, False).numeric


def test_a_row_of_the_wrong_length_is_refused():
    with pytest.raises(ValueError, match="row 1 has 1 cells for 2 columns"):
        Table(["a", "b"], [[1, 2], [3]])


def test_a_table_without_rows_says_so():
    assert "no rows" in render_page(Page("x", sections=[Section("s", "", [Table(["a"], [])])]))


@pytest.mark.parametrize(
    ("columns", "rows", "stacks"),
    [
        (["a", "b"], [[1, 2]], False),
        (["name", "b"], [["short", 2]], False),
        (["name", "b"], [["a sentence that a phone has no room for", 2]], True),
        (list("abcdef"), [[1] * 6] * 8, True),
        (list("abcdef"), [[1] * 6] * 9, False),
        (["only"], [["a sentence that a phone has no room for"]], False),
    ],
)
def test_rows_become_cards_on_a_phone_where_columns_would_be_cut(columns, rows, stacks):
    assert Table(columns, rows).drawing().stacks is stacks


def test_a_value_with_a_text_of_its_own_sorts_as_its_number():
    (column,) = Table(["difference"], [[Value("equal", 0.0)], [Value("1.0e-07", 1e-7)], [None]]).drawing().columns
    assert column.numeric
    assert [(cell.text, cell.order) for cell in column.cells] == [("equal", "0.0"), ("1.0e-07", "1e-07"), ("–", "")]
