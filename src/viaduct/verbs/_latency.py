"""`viaduct evaluate --latency`: duration of a call of the network for each batch size, as a table or as JSON."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viaduct.errors import BadValue

if TYPE_CHECKING:
    from viaduct.handover.classifier import Classifier

BATCHES, WARM_UP, REPEATS = "1,8,64", 100, 300  # defaults of --batch, --warm-up and --repeats


def refuse_scoring_flags(every: bool, data: Path | None, recompute: int, save: Path | None) -> None:
    """Raise BadValue for flags that have no meaning with --latency."""
    for flag, value in {"--all": every, "--data": data, "--recompute-batch-norm": recompute, "--save": save}.items():
        if value:
            raise BadValue(f"{flag}: --latency scores nothing.", "Leave one of them out.")


def refuse_latency_flags(batch: str | None, warm_up: int | None, repeats: int | None) -> None:
    """Raise BadValue for flags that have no meaning without --latency."""
    for flag, value in {"--batch": batch, "--warm-up": warm_up, "--repeats": repeats}.items():
        if value is not None:
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
    warm_up, repeats = WARM_UP if warm_up is None else warm_up, REPEATS if repeats is None else repeats
    rows, effects = [], []
    for size in batches:
        engine = build_engine(classifier, device=device, precision=precision, batch=size)
        if engine.folded:
            effects.append(measure_effect(engine, sample))
        rows.append(measure_latency(engine, size, warm_up=warm_up, repeats=repeats))
    # Report the batch size at which folding the batch norms changes the outputs most; NaN is the largest change.
    effect = max(effects, key=lambda effect: (math.isnan(effect.largest), effect.largest), default=None)
    facts = {
        "network": classifier.name,
        "size": classifier.size,
        "device": engine.device_module.describe_card(),
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

    from viaduct.terminal import make_number_columns, print_table

    columns = ["mean_ms", "p50_ms", "p90_ms", "p95_ms", "p99_ms"]
    headings = ("batch", "images/s", "mean ms", "p50", "p90", "p95", "p99", "calls", "after warm-up of")
    table = Table(*make_number_columns(*headings), box=None)
    for row in rows:
        times = ["-" if row[name] is None else f"{row[name]:.3f}" for name in columns]
        table.add_row(
            str(row["batch"]), f"{row['images_per_s']:,.1f}", *times, str(row["calls"]), str(row["warm_up_calls"])
        )
    print_table(table)
