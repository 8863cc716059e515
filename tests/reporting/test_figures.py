"""Numbers for a reader."""

import math

import numpy as np
import pytest

from viaduct.reporting.figures import (
    format_column,
    format_count,
    format_fixed,
    format_scientific,
    format_share,
    is_missing,
    is_number,
)


def test_yes_and_no_are_no_numbers_and_text_is_none_either():
    assert not any(map(is_number, (True, np.True_, "3", None)))
    assert all(map(is_number, (3, 0.5, np.float32(1), np.int64(2))))


def test_only_none_and_nan_are_missing():
    assert all(map(is_missing, (None, math.nan, np.float32("nan"))))
    assert not any(map(is_missing, (0, "", False, math.inf, "nan")))


@pytest.mark.parametrize(
    ("values", "written"),
    [
        ([2.3, 0.46, 0.0766667], ["2.3000", "0.4600", "0.0767"]),
        ([1.5, 2.25], ["1.50", "2.25"]),  # zeros at the end of all of them are left out
        ([50_000, 128.0, math.nan], ["50,000", "128", "–"]),
        ([2.5e-05, 0.1], ["2.5×10⁻⁵", "10⁻¹"]),
        ([1.5e7, 2.5], ["1.5×10⁷", "2.5×10⁰"]),
        ([math.inf, -math.inf, 0.5], ["∞", "−∞", "0.5"]),
        ([0.0, 0.25], ["0.00", "0.25"]),
        ([], []),
    ],
)
def test_the_numbers_of_a_column_have_one_form(values, written):
    assert format_column(values) == written


@pytest.mark.parametrize(
    ("value", "written"),
    [(0.0, "0"), (1e-5, "10⁻⁵"), (-2.5e-5, "-2.5×10⁻⁵"), (9.999e9, "10¹⁰"), (math.nan, "–"), (math.inf, "∞")],
)
def test_scientific_numbers_have_no_needless_digits(value, written):
    assert format_scientific(value) == written


def test_counts_shares_and_fixed_decimals_have_separators():
    assert (format_count(1_234_567), format_share(0.125), format_fixed(-1234.5, 2)) == (
        "1,234,567",
        "12.5\xa0%",
        "-1,234.50",
    )
