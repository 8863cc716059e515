"""The files of a comparison of tensors: page, table and summary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from viaduct.comparison.drift import Drift
from viaduct.comparison.output import write_output
from viaduct.comparison.report import write_report
from viaduct.comparison.table import write_csv


def write_drift(drift: Drift, record: dict[str, Any], out: Path) -> None:
    """Write report.html, drift.csv and summary.json, whole or not at all."""
    options = drift.options

    def page(path: Path) -> None:
        write_report(
            path,
            *(drift.rows, drift.left, drift.right, drift.explanation),
            thresholds=options.thresholds,
            threshold_source=options.threshold_source,
            settings={"KL divergence": options.kld},
            notes=drift.notes,
        )

    def rows(path: Path) -> None:
        path.write_bytes(write_csv(drift.rows))

    write_output(out, record, {"drift.csv": rows, "report.html": page})
