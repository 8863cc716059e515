"""Charts and the table of a run's metrics."""

from __future__ import annotations

import math
from typing import Any

import pytest

from viaduct.training.curves import build_curves, build_evaluation_table, format_percent, list_own_metrics

SCORES = dict.fromkeys(("top1", "top5", "precision", "recall", "f1"), 0.5)


def make_log(step: int, **changes: Any) -> dict[str, Any]:
    return {"step": step, "loss": 2.0, "top1": 0.25, "lr": 0.1, "images_per_s": 100.0, **changes}


def make_evaluation(step: int, **changes: Any) -> dict[str, Any]:
    record = {"kind": "evaluation", "step": step, "epoch": 1.0, "count": 18, "loss": 1.5, "seconds": 1.0, "time": 9.0}
    return {**record, **SCORES, **changes}


def test_a_chart_without_a_value_is_left_out() -> None:
    assert build_curves([], []) == []
    nothing = make_log(1, loss=None, top1=None, images_per_s=None)
    assert [chart.title for chart in build_curves([nothing], [])] == ["Learning rate"]


def test_accuracies_are_percent_and_a_missing_one_is_a_gap() -> None:
    charts = {chart.title: chart for chart in build_curves([make_log(1), make_log(2, top1=None)], [make_evaluation(2)])}
    training, validation = charts["Top-1"].series
    assert (training.name, list(training.x), list(training.y)) == ("training", [1, 2], [25.0, None])
    assert (validation.name, list(validation.y)) == ("validation", [50.0])
    assert list(charts["Loss"].series[0].y) == [2.0, 2.0]


def test_a_metric_of_the_recipe_has_a_chart_of_the_evaluations_that_have_it() -> None:
    evaluations = [make_evaluation(5), make_evaluation(10, kappa=0.3)]
    assert list_own_metrics(evaluations) == ["kappa"]
    (chart,) = (chart for chart in build_curves([make_log(1)], evaluations) if chart.title == "kappa")
    assert [(list(series.x), list(series.y)) for series in chart.series] == [([10], [0.3])]


def test_the_table_has_a_cell_in_every_column_of_every_evaluation() -> None:
    table = build_evaluation_table([make_evaluation(5, top5=None), make_evaluation(10, kappa=0.3)])
    assert table.columns[-2:] == ("F1", "kappa")
    assert [row[:5] for row in table.rows] == [[5, 1.0, 1.5, "50.00 %", "–"], [10, 1.0, 1.5, "50.00 %", "50.00 %"]]
    assert [row[-1] for row in table.rows] == [None, 0.3]


@pytest.mark.parametrize(
    ("share", "text"), [(None, "–"), (math.nan, "–"), (math.inf, "–"), (0.0, "0.00 %"), (1, "100.00 %")]
)
def test_a_share_that_is_no_number_is_a_dash(share: float | None, text: str) -> None:
    assert format_percent(share) == text
