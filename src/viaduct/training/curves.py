"""Charts and a table of RUN/metrics.jsonl, for the report of a run and for its live page. Needs no torch."""

from __future__ import annotations

import math
from typing import Any

from viaduct.reporting import LineChart, Series, Table
from viaduct.run_files import EVALUATION_FIELDS

NOISE_WARNING = "Trained on noise (--data synthetic): losses and accuracies say nothing."


def format_percent(share: float | None) -> str:
    return f"{100 * share:.2f} %" if share is not None and math.isfinite(share) else "–"


def build_curves(logs: list[dict[str, Any]], evaluations: list[dict[str, Any]]) -> list[LineChart]:
    """Return charts of the logged values; a chart without values is left out."""
    # The recipe's own metrics; a resumed run may have added one, so not all records have it.
    own = {name: [record for record in evaluations if name in record] for name in list_own_metrics(evaluations)}
    charts = [
        LineChart("Loss", "step", "loss", build_two_series(logs, evaluations, "loss")),
        LineChart("Top-1", "step", "accuracy", build_two_series(logs, evaluations, "top1", 100), log_y=False, unit="%"),
        *(
            LineChart(name, "step", name, [build_series("validation", records, name)], log_y=False)
            for name, records in own.items()
        ),
        LineChart("Learning rate", "step", "rate", [build_series("rate", logs, "lr")]),
        LineChart("Speed", "step", "images/s", [build_series("training", logs, "images_per_s")], log_y=False),
    ]
    return [chart for chart in charts if any(value is not None for series in chart.series for value in series.y)]


def build_two_series(
    logs: list[dict[str, Any]], evaluations: list[dict[str, Any]], field: str, factor: float | None = None
) -> list[Series]:
    """Return a series of a field's values for training and one for validation, each only if there are records of it."""
    records_by_name = {"training": logs, "validation": evaluations}
    return [build_series(name, records, field, factor) for name, records in records_by_name.items() if records]


def build_series(name: str, records: list[dict[str, Any]], field: str, factor: float | None = None) -> Series:
    values = [record[field] for record in records]
    if factor is not None:
        values = [None if value is None else factor * value for value in values]
    return Series(name, [record["step"] for record in records], values)


def build_evaluation_table(evaluations: list[dict[str, Any]]) -> Table:
    """Return a table with a row for each evaluation: loss, scores, and the recipe's own metrics."""
    shares = {"top1": "top-1", "top5": "top-5", "precision": "precision", "recall": "recall", "f1": "F1"}
    own_metrics = list_own_metrics(evaluations)
    rows = [
        [
            *(record[name] for name in ("step", "epoch", "loss")),
            *(format_percent(record[field]) for field in shares),
            *(record.get(name) for name in own_metrics),
        ]
        for record in evaluations
    ]
    return Table(("step", "epoch", "loss", *shares.values(), *own_metrics), rows)


def list_own_metrics(evaluations: list[dict[str, Any]]) -> list[str]:
    """Return the names of the metrics that the recipe itself defines, from records of evaluations."""
    known = {*EVALUATION_FIELDS, "step", "epoch", "time", "kind"}
    return list(dict.fromkeys(name for record in evaluations for name in record if name not in known))
