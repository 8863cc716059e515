"""Page over several runs: their curves in one chart, hyper-parameters against results, a table, lineage."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from viaduct.cluster.findings import join_first
from viaduct.errors import BadRun
from viaduct.json_records import Json
from viaduct.reporting import (
    Callout,
    DataColumn,
    GraphDrawing,
    Node,
    Page,
    ParallelPlot,
    Part,
    PlotAxis,
    RunCurves,
    Section,
    Series,
    Table,
    Tile,
    Tone,
    VirtualTable,
)
from viaduct.reporting.thinning import choose_points
from viaduct.run_files import read_metrics
from viaduct.runs.choosing import is_on_noise
from viaduct.runs.facts import RunFacts, to_percent
from viaduct.runs.finding import Problem
from viaduct.runs.importance import is_bookkeeping, rank_importance
from viaduct.runs.lineage import Node as LineageNode
from viaduct.runs.lineage import trace_lineage
from viaduct.runs.table import count_states, format_percent

MAX_CURVES = 24  # number of runs that are drawn as curves, and in the lineage
MAX_LINES = 500  # number of runs in the plot of hyper-parameters
MAX_PARAMETERS = 7  # number of hyper-parameters in that plot
CURVE_POINTS = 300  # a curve is thinned to about this number of points
LOG_SCALE_RATIO = 20.0  # the scale is logarithmic if the largest loss is more than this many times the smallest
TONES: dict[str, Tone] = {  # of each facts.State
    "finished": "good",
    "running": "new",
    "interrupted": "warn",
    "pruned": "muted",
    "crashed": "bad",
    "unknown": "muted",
    "never begun": "muted",
}
RESULTS: tuple[tuple[str, str, Callable[[RunFacts], float | None]], ...] = (  # label, unit, reader of the value
    ("images/s", "", lambda run: run.images_per_s),
    ("last loss", "", lambda run: run.loss),
    ("best top-1", "%", lambda run: to_percent(run.best_top1)),
)


def build_page(
    runs: Sequence[RunFacts], problems: Sequence[Problem], title: str, version: str = "", ended: bool = False
) -> Page:
    """Return the page over `runs`, the newest first.

    A page with a `version` is served and reloads itself when the version changes, until it has `ended`.
    """
    sections = [build_curves(runs), build_parameters(runs), build_table(runs), build_lineage(runs)]
    if problems:
        rows = [[problem.path, problem.reason] for problem in problems]
        sections.append(Section("Not listed as runs", parts=[Table(("folder", "reason"), rows)]))
    return Page(
        title,
        count_states(runs),
        build_tiles(runs),
        [section for section in sections if section is not None],
        warn_of_noise(runs),
        verb="runs",
        kind="runs",
        version=version,
        ended=ended,
    )


def build_tiles(runs: Sequence[RunFacts]) -> list[Tile]:
    evaluated = [run for run in runs if run.best_top1 is not None and not is_on_noise(run)]
    best = max(evaluated, key=lambda run: run.best_top1 or 0.0, default=None)
    fastest = max(runs, key=lambda run: run.images_per_s or 0.0, default=None)
    running = [run for run in runs if run.state == "running"]
    crashed = [run for run in runs if run.state == "crashed"]
    top1 = Tile("best top-1", "–", "no evaluation on real data")
    if best:
        top1 = Tile("best top-1", f"{format_percent(best.best_top1)} %", best.name)
    speed = Tile("fastest", "–")
    if fastest and fastest.images_per_s:
        speed = Tile("fastest", f"{fastest.images_per_s:,.0f} images/s", fastest.name)
    return [
        Tile("runs", f"{len(runs):,}", f"{len(running)} running"),
        top1,
        speed,
        Tile("crashed", f"{len(crashed):,}", crashed[0].name if crashed else ""),
    ]


def warn_of_noise(runs: Sequence[RunFacts]) -> list[Part]:
    """Return a warning that names the runs trained with `--data synthetic`; empty if there are none."""
    noisy = [run.name for run in runs if is_on_noise(run)]
    if not noisy:
        return []
    names = join_first(noisy, 5)
    return [Callout("warn", f"Trained on noise, so that their losses and accuracies say nothing: {names}.")]


# Curves


def build_curves(runs: Sequence[RunFacts]) -> Section | None:
    """Return the curves of training loss and validation top-1, at most of the MAX_CURVES runs with the best top-1."""
    drawn = list(runs)
    if len(runs) > MAX_CURVES:
        drawn.sort(key=lambda run: run.best_top1 if run.best_top1 is not None else -1.0, reverse=True)
    drawn = drawn[:MAX_CURVES]
    losses, accuracies, unreadable = [], [], []
    for run in drawn:
        try:
            logs, evaluations = (read_metrics(Path(run.path), kind) for kind in ("log", "evaluation"))
        except (BadRun, OSError):
            unreadable.append(run.name)
            continue
        losses.append(read_series(run.name, logs, "loss"))
        accuracies.append(read_series(run.name, evaluations, "top1", 100.0))
    parts: list[Part] = []
    if any(len(series.x) for series in losses):
        parts.append(RunCurves("Training loss", "step", "loss", losses, log_y=needs_log_scale(losses)))
    if any(len(series.x) for series in accuracies):
        parts.append(RunCurves("Validation top-1", "step", "top-1", accuracies, unit="%"))
    notes = [f"The {len(drawn)} runs with the best top-1 of {len(runs):,}."] if len(drawn) < len(runs) else []
    notes += [f"Metrics that cannot be read: {join_first(unreadable)}."] if unreadable else []
    return Section("Curves", " ".join(notes), parts) if parts or unreadable else None


def read_series(name: str, records: list[Json], field: str, factor: float = 1.0) -> Series:
    """Return one curve; of several records of a step, as after a resume, the last is drawn."""
    by_step = {record["step"]: record[field] for record in records}
    values = [None if value is None else factor * value for value in by_step.values()]
    kept = choose_points(np.array(values, dtype=np.float64), CURVE_POINTS)
    steps = list(by_step)
    return Series(name, [steps[position] for position in kept], [values[position] for position in kept])


def needs_log_scale(series: Sequence[Series]) -> bool:
    """Return True if losses are above 0 and differ so much that a logarithmic scale shows them better."""
    values = [float(value) for line in series for value in line.y if value is not None]
    return bool(values) and min(values) > 0 and max(values) > LOG_SCALE_RATIO * min(values)


# Hyper-parameters against results


def build_parameters(runs: Sequence[RunFacts]) -> Section | None:
    """Return the plot of hyper-parameters and results on parallel axes; None if no hyper-parameter differs."""
    shown = list(runs[:MAX_LINES])
    names = find_varying(shown)
    if not names:
        return None
    axes = [
        PlotAxis(name, [convert_axis_value(run.fields.get(name)) for run in shown]) for name in names[:MAX_PARAMETERS]
    ]
    results = [PlotAxis(name, [read(run) for run in shown], unit) for name, unit, read in RESULTS]
    axes += [axis for axis in results if len(axis.known) > 1]
    text = f"Fields of the recipe that differ between runs{describe_left_out(names, len(runs))}."
    plot = ParallelPlot("Hyper-parameters and results", [run.name for run in shown], axes)
    return Section("Hyper-parameters", text, [plot])


def find_varying(runs: Sequence[RunFacts]) -> list[str]:
    """Return the fields that differ between runs, the most important first."""
    fields = dict.fromkeys(name for run in runs for name in run.fields if not is_bookkeeping(name))
    varying = [name for name in fields if len({repr(run.fields.get(name)) for run in runs}) > 1]
    return sorted(varying, key=rank_importance)


def describe_left_out(names: list[str], count: int) -> str:
    """Describe the hyper-parameters and runs that the plot leaves out; empty if it shows all."""
    parts = []
    if len(names) > MAX_PARAMETERS:
        parts.append(f"the first {MAX_PARAMETERS} of {len(names)}, without {join_first(names[MAX_PARAMETERS:], 5)}")
    if count > MAX_LINES:
        parts.append(f"the newest {MAX_LINES} of {count:,} runs")
    return f": {'; '.join(parts)}" if parts else ""


def convert_axis_value(value: Any) -> Any:
    """Convert a value to one that an axis can show: a number, or text."""
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)


# Table and lineage


def build_table(runs: Sequence[RunFacts]) -> Section:
    now = time.time()
    columns = [
        DataColumn("run", [run.name for run in runs], width=20, priority=1),
        DataColumn("recipe", [run.recipe for run in runs], width=18, filterable=True),
        DataColumn("data", [run.data for run in runs], width=12, filterable=True),
        DataColumn("state", [run.state for run in runs], width=12, filterable=True, tones=TONES, priority=3),
        DataColumn("best top-1 %", [to_percent(run.best_top1) for run in runs], width=10, priority=2),
        DataColumn("last top-1 %", [to_percent(run.top1) for run in runs], width=10),
        DataColumn("last loss", [run.loss for run in runs], width=10, priority=4),
        DataColumn("steps", [run.steps for run in runs], width=8),
        DataColumn("of", [run.steps_total for run in runs], width=8),
        DataColumn("images/s", [run.images_per_s for run in runs], width=9),
        DataColumn("device", [run.short_device or "" for run in runs], width=16, filterable=True),
        DataColumn("code", [run.code or "" for run in runs], width=14),
        DataColumn("hours old", [None if run.changed is None else (now - run.changed) / 3600 for run in runs], width=9),
        DataColumn("why", [run.reason for run in runs], width=30, wraps=True),
    ]
    return Section("Runs", parts=[VirtualTable("runs", columns, f"{len(runs):,} runs")])


def build_lineage(runs: Sequence[RunFacts]) -> Section | None:
    """Return the graph of the origins of runs that began with weights from a file; None if there are no such runs."""
    from_weights = [run for run in runs if run.init or run.fields.get("init.source")]
    if not from_weights:
        return None
    graph = LineageGraph()
    for run in from_weights[:MAX_CURVES]:
        graph.add(trace_lineage(run, runs), focus=True)
    drawing = GraphDrawing("Where weights came from", list(graph.nodes.values()), list(graph.edges))
    limit = f" The first {MAX_CURVES} of {len(from_weights):,} are drawn." if len(from_weights) > MAX_CURVES else ""
    return Section("Lineage", f"Runs that began with stored weights, and their data.{limit}", [drawing])


class LineageGraph:
    """Nodes and edges of the graph of several lineages, each once."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.edges: dict[tuple[str, str], None] = {}  # an ordered set

    def add(self, origin: LineageNode, focus: bool = False) -> str:
        """Add a node of a lineage with its origins, and return its key; `focus` marks it in the drawing."""
        tones: dict[str, Tone] = {"run": "good", "weights": "new", "data": "muted", "missing": "bad"}
        key = f"{origin.kind} {origin.label} {'' if origin.kind == 'run' else origin.note}"
        if key not in self.nodes or focus:
            label = Path(origin.label).name if origin.kind == "run" else origin.label
            self.nodes[key] = Node(key, tones[origin.kind], label or origin.label, origin.note, focus=focus)
        for parent in origin.parents:
            self.edges[self.add(parent), key] = None
        return key
