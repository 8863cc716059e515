"""`viaduct evaluate --latency`: how long answers take, as a table or as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viaduct.errors import BadValue

if TYPE_CHECKING:
    from viaduct.handover.classifier import Classifier


def refuse_scoring_flags(every: bool, data: Path | None, recompute: int, save: Path | None) -> None:
    """Refuse what only scoring uses."""
    for flag, given in {"--all": every, "--data": data, "--recompute-batch-norm": recompute, "--save": save}.items():
        if given:
            raise BadValue(f"{flag}: --latency scores nothing.", "Leave one of them out.")


def show_latency(
    classifier: Classifier, device: str, precision: str | None, batch: str, warm_up: int, repeats: int, as_json: bool
) -> None:
    """Measure and print call times of a classifier, a row for each batch size."""
    from viaduct.handover.engine import build_engine
    from viaduct.handover.latency import measure_latency, read_batches

    batches = read_batches(batch)
    rows = []
    for count in batches:
        engine = build_engine(classifier, device=device, precision=precision, batch=count)
        rows.append(measure_latency(engine, count, warm_up=warm_up, repeats=repeats))
    facts = {
        "network": classifier.name,
        "size": classifier.size,
        "device": engine.room.description(),
        "precision": engine.precision,
        "folded": engine.folded,
        "largest_difference_of_a_probability": engine.difference,
    }
    if as_json:
        print(json.dumps({**facts, "rows": rows}, indent=1))
        return
    print(f"{facts['network']} at {facts['size']}, {facts['precision']}, {facts['device']}", file=sys.stderr)
    folded = f"batch norms folded, probabilities within {engine.difference:.1e} of the network's on noise"
    print(engine.note or folded, file=sys.stderr)
    print_latency(rows)


def print_latency(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from viaduct.terminal import figure_columns, print_table

    columns = ["mean_ms", "p50_ms", "p90_ms", "p95_ms", "p99_ms"]
    heads = ("batch", "images/s", "mean ms", "p50", "p90", "p95", "p99", "calls", "after warm-up of")
    table = Table(*figure_columns(*heads), box=None)
    for row in rows:
        times = ["-" if row[name] is None else f"{row[name]:.3f}" for name in columns]
        table.add_row(
            str(row["batch"]), f"{row['images_per_s']:,.1f}", *times, str(row["calls"]), str(row["warm_up_calls"])
        )
    print_table(table)
