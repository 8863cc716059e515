"""One run as text: its facts, its curves as lines of blocks, its last evaluations, a diagnosis, its recipe."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

from viaduct.json_records import Json
from viaduct.run_files import read_metrics
from viaduct.runs.choosing import is_on_noise
from viaduct.runs.facts import RunFacts
from viaduct.runs.importance import is_bookkeeping, rank_importance
from viaduct.runs.table import DASH, format_age, format_percent, format_speed, format_steps
from viaduct.terminal import align_columns, escape_controls

BLOCKS = "▁▂▃▄▅▆▇█"
NOT_FINITE = "×"
WIDTH = 60  # largest number of blocks of a curve
LAST_EVALUATIONS = 5


def render_run(run: RunFacts) -> str:
    """Return facts, curves, last evaluations, diagnosis of the learning rate and recipe of a run."""
    logs, evaluations = (read_last_records(run, kind) for kind in ("log", "evaluation"))
    parts = [render_facts(run), render_curves(logs, evaluations), render_evaluations(evaluations)]
    if is_on_noise(run):
        parts.append("Trained on noise (--data synthetic): losses and accuracies say nothing.")
    else:
        parts.append(render_diagnosis(logs))
    parts.append(render_recipe(run))
    return "\n\n".join(part for part in parts if part)


def read_last_records(run: RunFacts, kind: str) -> list[Json]:
    """Return the records of a kind; a resumed run may have several for one step, of which the last is returned."""
    return list({record["step"]: record for record in read_metrics(Path(run.path), kind)}.values())


def render_facts(run: RunFacts) -> str:
    began = DASH if run.began is None else f"{datetime.fromtimestamp(run.began, timezone.utc):%Y-%m-%d %H:%M} UTC"
    sessions = f"{run.sessions} starts recorded; " if run.sessions and run.sessions > 1 else ""
    fingerprint = "fingerprint not recorded"
    if run.fingerprint is not None:
        fingerprint = f"fingerprint {run.fingerprint[:12]} of {run.fingerprint_basis}"
    facts = {  # None is shown as a dash; a fact that is empty is left out
        "run": run.path,
        "state": f"{run.state}: {run.reason}" if run.reason else run.state,
        "recipe": run.recipe,
        "data": f"{run.data_path or run.data} ({fingerprint})",
        "first weights": run.init["source"] if run.init and "source" in run.init else None,
        "code": describe_code(run),
        "machine": run.device,
        "ranks": run.ranks,
        "host": f"{run.host}, process {run.pid}" if run.host and run.pid else run.host,
        "began": f"{began}; {sessions}last change {format_age(run.changed, time.time())} ago",
        "steps": f"{format_steps(run)}, epoch {run.epoch:.2f}" if run.epoch is not None else format_steps(run),
        "best top-1": describe_best(run),
        "last top-1": f"{format_percent(run.top1)} %" if run.top1 is not None else None,
        "images/s": format_speed(run.images_per_s) if run.images_per_s is not None else None,
        "command": run.command,
        "damaged": "; ".join(run.damage),
    }
    width = max(map(len, facts))
    shown = {name: DASH if value is None else escape_controls(str(value)) for name, value in facts.items()}
    return "\n".join(f"{name:{width}}  {value}" for name, value in shown.items() if value)


def describe_code(run: RunFacts) -> str | None:
    if run.modified_files:
        commit = run.commit or "unknown commit"
        return f"{commit}, {run.modified_files} files differ from git's index; viaduct {run.version}"
    return f"{run.commit}; viaduct {run.version}" if run.commit else run.version


def describe_best(run: RunFacts) -> str | None:
    if run.best_top1 is None or run.best_step is None:
        return None
    return f"{format_percent(run.best_top1)} % after step {run.best_step:,}"


def render_curves(logs: list[Json], evaluations: list[Json]) -> str:
    curves = {
        "loss": [record["loss"] for record in logs],
        "top-1": [record["top1"] for record in evaluations],
        "rate": [record["lr"] for record in logs],
    }
    return "\n".join(draw_curve(name, values) for name, values in curves.items() if len(values) > 1)


def draw_curve(name: str, values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return f"{name:6} {NOT_FINITE * min(len(values), WIDTH)} (never finite)"
    ends = f"{format_end(values[0])} to {format_end(values[-1])}"
    return f"{name:6} {draw_sparkline(values)}  {ends}, lowest {min(known):.4g}, highest {max(known):.4g}"


def format_end(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}"


def draw_sparkline(values: Sequence[float | None]) -> str:
    """Return a curve as blocks of eight heights, each the median of a group of values; × if none is finite."""
    count = min(WIDTH, len(values))
    medians = []
    for block in range(count):
        group = values[block * len(values) // count : (block + 1) * len(values) // count]
        known = [value for value in group if value is not None]
        medians.append(median(known) if known else None)
    known = [value for value in medians if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    return "".join(NOT_FINITE if value is None else choose_block(value, low, high) for value in medians)


def choose_block(value: float, low: float, high: float) -> str:
    height = (value - low) / (high - low) if high > low and math.isfinite(high - low) else 0.5
    return BLOCKS[min(len(BLOCKS) - 1, int(height * len(BLOCKS)))]


def render_evaluations(evaluations: list[Json]) -> str:
    if not evaluations:
        return "Not evaluated yet."
    rows = [
        [
            f"{record['step']:,}",
            f"{record['epoch']:.2f}",
            DASH if record["loss"] is None else f"{record['loss']:.4f}",
            format_percent(record["top1"]),
            format_percent(record["top5"]),
        ]
        for record in evaluations[-LAST_EVALUATIONS:]
    ]
    count = f" (the last {len(rows)} of {len(evaluations)})" if len(rows) < len(evaluations) else ""
    table = align_columns([["step", "epoch", "loss", "top-1", "top-5"], *rows], text_columns=())
    return "\n".join([f"Evaluations{count}:", *table])


def render_diagnosis(logs: list[Json]) -> str:
    """Return the diagnosis of the learning rate from the loss curve."""
    from viaduct.runs.curve_diagnosis import diagnose

    losses: list[float] = []
    rates: list[float] = []
    for record in logs:
        step_losses = record.get("losses")
        values: list[Any] = step_losses if isinstance(step_losses, list) and step_losses else [record["loss"]]
        losses += [math.nan if value is None else float(value) for value in values]
        rates += [math.nan if record["lr"] is None else float(record["lr"])] * len(values)
    return f"Learning rate: {diagnose(losses, rates).text}" if losses else ""


def render_recipe(run: RunFacts) -> str:
    """Return the fields of the recipe that may change the result, without empty ones, the most important first."""
    shown = {name: value for name, value in run.fields.items() if not is_bookkeeping(name) and value not in ("", None)}
    ordered = sorted(shown, key=rank_importance)
    return "Recipe: " + ", ".join(f"{name}={escape_controls(str(shown[name]))}" for name in ordered)
