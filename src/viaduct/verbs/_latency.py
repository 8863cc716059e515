"""`viaduct evaluate --latency`: how long answers take, as a table or as JSON."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viaduct.errors import BadValue

if TYPE_CHECKING:
    from viaduct.handover.classifier import Classifier

BATCHES, WARM_UP, REPEATS = "1,8,64", 100, 300


def refuse_scoring_flags(every: bool, data: Path | None, recompute: int, save: Path | None) -> None:
    """Refuse what only scoring uses."""
    for flag, given in {"--all": every, "--data": data, "--recompute-batch-norm": recompute, "--save": save}.items():
        if given:
            raise BadValue(f"{flag}: --latency scores nothing.", "Leave one of them out.")


def refuse_latency_flags(batch: str | None, warm_up: int | None, repeats: int | None) -> None:
    """Refuse what only --latency uses."""
    for flag, given in {"--batch": batch, "--warm-up": warm_up, "--repeats": repeats}.items():
        if given is not None:
            raise BadValue(f"{flag} is for --latency, which is not given.", f"Add --latency, or leave {flag} out.")


def show_latency(
    classifier: Classifier,
    device: str,
    precision: str | None,
    batch: str | None,
    warm_up: int | None,
    repeats: int | None,
    as_json: bool,
) -> None:
    """Measure and print call times of a classifier, a row for each batch size."""
    from viaduct.handover.engine import build_engine
    from viaduct.handover.folding_effect import draw_sample, measure_effect
    from viaduct.handover.latency import measure_latency, read_batches

    batches, sample = read_batches(BATCHES if batch is None else batch), draw_sample(classifier, device, precision)
    calls_before, calls = WARM_UP if warm_up is None else warm_up, REPEATS if repeats is None else repeats
    rows, effects = [], []
    for count in batches:
        engine = build_engine(classifier, device=device, precision=precision, batch=count)
        if engine.folded:
            effects.append(measure_effect(engine, sample))
        rows.append(measure_latency(engine, count, warm_up=calls_before, repeats=calls))
    effect = max(effects, key=lambda effect: (math.isnan(effect.largest), effect.largest), default=None)
    facts = {
        "network": classifier.name,
        "size": classifier.size,
        "device": engine.room.description(),
        "precision": engine.precision,
        "folded": engine.folded,
        "folding": effect and effect.as_dict(),
    }
    if as_json:
        print(json.dumps({**facts, "rows": rows}, indent=1))
        return
    print(f"{facts['network']} at {facts['size']}, {facts['precision']}, {facts['device']}", file=sys.stderr)
    print(effect or engine.note, file=sys.stderr)
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
