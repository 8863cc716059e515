"""What RUN/metrics.jsonl says, as charts and a table: for the report of a run, and for the page that shows it live.

Needs no torch: a run is read here that another process trains.
"""

from __future__ import annotations

import math
from typing import Any

from viaduct.reporting import LineChart, Series, Table
from viaduct.run_files import HEADLINE

NOISE = "Trained on noise (--data synthetic): losses and accuracies say nothing."


def write_percent(share: float | None) -> str:
    return f"{100 * share:.2f} %" if share is not None and math.isfinite(share) else "–"


def curves(logs: list[dict[str, Any]], evaluations: list[dict[str, Any]]) -> list[LineChart]:
    """Return charts of what was logged; a chart without a single value is left out."""
    charts = [
        LineChart("Loss", "step", "loss", both(logs, evaluations, "loss")),
        LineChart("Top-1", "step", "accuracy", both(logs, evaluations, "top1", 100), log_y=False, unit="%"),
        *(
            LineChart(name, "step", name, [line("validation", known_of(evaluations, name), name)], log_y=False)
            for name in own_metrics(evaluations)
        ),
        LineChart("Learning rate", "step", "rate", [line("rate", logs, "lr")]),
        LineChart("Speed", "step", "images/s", [line("training", logs, "images_per_s")], log_y=False),
    ]
    return [chart for chart in charts if any(value is not None for series in chart.series for value in series.y)]


def known_of(records: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Return the records that have this value: a metric may have been added when the run was continued."""
    return [record for record in records if name in record]


def both(
    logs: list[dict[str, Any]], evaluations: list[dict[str, Any]], field: str, factor: float | None = None
) -> list[Series]:
    sides = {"training": logs, "validation": evaluations}
    return [line(name, records, field, factor) for name, records in sides.items() if records]


def line(name: str, records: list[dict[str, Any]], field: str, factor: float | None = None) -> Series:
    values = [record[field] for record in records]
    if factor is not None:
        values = [None if value is None else factor * value for value in values]
    return Series(name, [record["step"] for record in records], values)


def evaluation_table(evaluations: list[dict[str, Any]]) -> Table:
    shares = {"top1": "top-1", "top5": "top-5", "precision": "precision", "recall": "recall", "f1": "F1"}
    own = own_metrics(evaluations)
    rows = [
        [
            *(record[name] for name in ("step", "epoch", "loss")),
            *(write_percent(record[field]) for field in shares),
            *(record.get(name) for name in own),
        ]
        for record in evaluations
    ]
    return Table(("step", "epoch", "loss", *shares.values(), *own), rows)


def own_metrics(evaluations: list[dict[str, Any]]) -> list[str]:
    """Return the names of the recipe's own metrics among what evaluations have written down."""
    known = {*HEADLINE, "step", "epoch", "time", "kind"}
    return list(dict.fromkeys(name for record in evaluations for name in record if name not in known))
