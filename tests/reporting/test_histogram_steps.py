"""One distribution at several steps."""

from __future__ import annotations

import re

import pytest

from viaduct.reporting import Histogram, HistogramSteps


def test_all_steps_share_one_axis() -> None:
    drawing = HistogramSteps("w", [Histogram(1, -1, 1, [1, 1]), Histogram(2, 0, 3, [2, 2])]).drawing()
    assert drawing.ticks == ["-1.0", "1.0", "3.0"]
    assert "H500" in drawing.shapes[0]  # 1 lies in the middle of -1 to 3
    assert drawing.shapes[1].startswith("M0 1000H250V")
    assert drawing.summary == "step 1 (back) to 2 (front); 4 values, from -1.0 to 3.0"


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.998, 1.0006, ["0.9980", "0.9993", "1.0006"]),
        (-0.2, 0.167, ["-0.20", "-0.02", "0.17"]),
        (-0.2, 0.1999, ["-0.20", "0.00", "0.20"]),  # no minus before a zero
        (-2000, 4000, ["-2,000", "1,000", "4,000"]),
        (-0.0004, 0.0005, ["-4×10⁻⁴", "5×10⁻⁵", "5×10⁻⁴"]),
    ],
)
def test_the_ends_are_distinguished_in_few_digits(low: float, high: float, ticks: list[str]) -> None:
    assert HistogramSteps("norm", [Histogram(1, low, high, [1, 1])]).drawing().ticks == ticks


def test_shapes_stay_within_the_drawing() -> None:
    steps = [Histogram(step, -step, step, [0, 5, 0, 9]) for step in range(1, 9)]
    for shape in HistogramSteps("w", steps).drawing().shapes:
        assert all(0 <= float(number) <= 1000 for number in re.findall(r"-?[\d.]+", shape))


@pytest.mark.parametrize("value", [0.0, 1e-30, -7.0, 1e300])
def test_values_that_are_all_equal_are_seen(value: float) -> None:
    drawing = HistogramSteps("bias", [Histogram(1, value, value, [0, 9, 0])]).drawing()
    assert re.search(r"V0H", drawing.shapes[0])  # a bin as high as there is room
    assert drawing.summary == f"step 1; 9 values, all {value:.4g}"


def test_no_histograms_are_no_drawing() -> None:
    drawing = HistogramSteps("w", []).drawing()
    assert (drawing.shapes, drawing.summary) == ([], "no values")


@pytest.mark.parametrize(("low", "high"), [(1, 0), (0, float("inf")), (float("nan"), 1), (-1.7e308, 1.7e308)])
def test_ends_without_a_distance_are_refused(low: float, high: float) -> None:
    with pytest.raises(ValueError, match="finite ends"):
        Histogram(1, low, high, [1])
