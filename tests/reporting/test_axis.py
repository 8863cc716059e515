"""Axes: round ticks with different labels."""

from __future__ import annotations

import numpy as np
import pytest

from viaduct.reporting.axis import Axis, fit_x_axis, fit_y_axis


def labels(ticks) -> list[str]:
    return [tick.label for tick in ticks]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (0, 12_000, ["0", "2,000", "4,000", "6,000", "8,000", "10,000", "12,000"]),
        (100.001, 100.0035, ["100.0010", "100.0015", "100.0020", "100.0025", "100.0030", "100.0035"]),
        (0, 3e6, ["0", "0.5 M", "1.0 M", "1.5 M", "2.0 M", "2.5 M", "3.0 M"]),
        (0, 3e-6, ["0", "5×10⁻⁷", "10⁻⁶", "1.5×10⁻⁶", "2×10⁻⁶", "2.5×10⁻⁶", "3×10⁻⁶"]),
        (-50, 0, ["-50", "-40", "-30", "-20", "-10", "0"]),
    ],
)
def test_ticks_are_round_and_distinguished(low, high, expected):
    assert labels(Axis(low, high).ticks(7)) == expected


def test_a_value_without_a_logarithm_has_no_position():
    positions = Axis(1, 100, log=True).compute_positions(np.array([1.0, 10, 100, 0, -1]))
    assert positions[:3].tolist() == [0, 0.5, 1]
    assert np.isnan(positions[3:]).all()


def test_an_axis_of_one_value_has_it_in_the_middle():
    for fit in (fit_x_axis, fit_y_axis):
        for value in (7.0, -1e12, 0.0):
            assert fit(np.full(3, value)).compute_positions(np.array([value])) == pytest.approx(0.5)


def test_a_vertical_axis_begins_at_zero_only_where_zero_is_near():
    assert fit_y_axis(np.array([2.0, 10])).low == 0
    assert fit_y_axis(np.array([9.0, 10])).low == pytest.approx(8.95)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.5, 2000, ["1", "10", "100", "1,000"]),
        (1, 12, ["1", "2", "5", "10"]),
        (1e-9, 1e-3, ["10⁻⁹", "10⁻⁷", "10⁻⁵", "10⁻³"]),
        (3, 4.4, ["3", "3.5", "4"]),
    ],
)
def test_a_log_axis_has_round_ticks_too(low, high, expected):
    assert labels(Axis(low, high, log=True).ticks(4)) == expected
