"""Page of a search: the best trial and the noise, history, importance, each parameter, contours, all trials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, combinations
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from viaduct.reporting import (
    BarChart,
    Callout,
    Code,
    LineChart,
    Page,
    Part,
    Remark,
    Section,
    Series,
    Table,
    Tile,
    write_page,
)
from viaduct.reporting.contour_map import ContourAxis, ContourMap, Measurement
from viaduct.runs.search.output import explain_missing_importance, order_results
from viaduct.runs.search.results import (
    FRACTIONS,
    State,
    TrialResult,
    Verdict,
    describe_values,
    describe_verdict,
    format_setting,
    format_value,
)
from viaduct.runs.search.space import Choices, Dimension, Range

if TYPE_CHECKING:
    from viaduct.runs.search.session import SearchOutcome

MAX_CONTOURS = 6


def write_search_report(path: Path, outcome: SearchOutcome, importance: dict[str, float] | None) -> None:
    """Write the page of a search of which at least one trial was trained to its end."""
    verdict = outcome.verdict
    assert verdict is not None
    headline, *remarks = describe_verdict(verdict, outcome.request.metric)
    notes = [Remark("Noise", text) for text in remarks]
    past = sum(result.number is None for result in outcome.results)
    not_drawn = f"; {past} past runs are not drawn" if past else ""
    sections = [
        Section("History", f"In the order of the trials{not_drawn}.", [draw_history(outcome)]),
        build_importance(importance, outcome),
        Section(
            "Each parameter",
            "One dot for each trial or past run that was trained to its end.",
            [draw_parameter(outcome, dimension) for dimension in outcome.space.dimensions],
        ),
        *build_contours(outcome, importance),
        Section("Trials", parts=[build_trial_table(outcome)]),
        Section("Best trial", f"{outcome.recipe_file}", [Code(outcome.command)]),
    ]
    page = Page(
        outcome.request.loaded.name,
        f"Search over {', '.join(outcome.space.paths)}",
        build_tiles(outcome, verdict),
        sections,
        [Callout("muted" if verdict.ties or verdict.noise is None else "good", headline, notes)],
        kind="search",
    )
    write_page(page, path)


def build_tiles(outcome: SearchOutcome, verdict: Verdict) -> list[Tile]:
    counts = {state: sum(result.state == state for result in outcome.results) for state in get_args(State)}
    metric = outcome.request.metric
    measured = [
        Tile(metric, format_value(verdict.best.value, metric), verdict.best.name),
        Tile("not separated from it", str(len(verdict.ties)) if verdict.noise is not None else "-", "by the noise"),
    ]
    return measured + [Tile(state, str(count)) for state, count in counts.items() if count]


def scale_metric(value: float | None, metric: str) -> float | None:
    """Convert a metric that is shown in percent; others stay as they are."""
    return value if value is None or metric not in FRACTIONS else 100 * value


def find_unit(metric: str) -> str:
    return "%" if metric in FRACTIONS else ""


def draw_history(outcome: SearchOutcome) -> LineChart:
    """Return the chart of the trials in their order: the best so far, finished ones, and those stopped early."""
    metric = outcome.request.metric
    trials = [result for result in outcome.results if result.number is not None]  # past runs have none
    finished = [result for result in trials if result.is_measured]
    is_maximized = outcome.study.direction.name == "MAXIMIZE"
    values = accumulate((result.value or 0.0 for result in finished), max if is_maximized else min)
    best_so_far = [scale_metric(value, metric) for value in values]
    series = [
        Series("best so far", [result.number for result in finished], best_so_far),
        make_dots("finished", [(result.number or 0, scale_metric(result.value, metric)) for result in finished]),
    ]
    pruned = [(result.number or 0, scale_metric(result.value, metric)) for result in trials if result.state == "pruned"]
    if pruned:
        series.append(make_dots("stopped early", pruned))
    return LineChart("History", "trial", metric, series, log_y=False, unit=find_unit(metric))


def make_dots(name: str, points: Sequence[tuple[float, float | None]]) -> Series:
    """Return a series of dots, sorted by x."""
    ordered = sorted(points, key=lambda point: point[0])
    return Series(name, [x for x, _ in ordered], [y for _, y in ordered], dots=True)


def build_importance(importance: dict[str, float] | None, outcome: SearchOutcome) -> Section:
    if importance is None:
        return Section("Importance", f"Not given: {explain_missing_importance(outcome.results)}.")
    text = "How much each parameter separates the best tenth of the trials from all trials (PED-ANOVA)."
    counts = [round(1000 * share) for share in importance.values()]  # the bars take whole numbers
    return Section("Importance", text, [BarChart("Importance, per mille", list(importance), counts)])


def draw_parameter(outcome: SearchOutcome, dimension: Dimension) -> LineChart:
    """Return the chart of the metric against one parameter."""
    metric = outcome.request.metric
    log = isinstance(dimension, Range) and dimension.log
    label = f"log10 {dimension.path}" if log else dimension.path
    numeric = isinstance(dimension, Range) or is_numeric(dimension)
    if isinstance(dimension, Choices) and not numeric:
        label = f"{dimension.path}: {', '.join(f'{n} = {text}' for n, text in enumerate(dimension.texts))}"
    points = []
    for result in outcome.results:
        if result.is_measured:
            x = float(result.values[dimension.path]) if numeric else get_axis_position(dimension, result)
            points.append((math.log10(x) if log else x, scale_metric(result.value, metric)))
    return LineChart(dimension.path, label, metric, [make_dots("trials", points)], log_y=False, unit=find_unit(metric))


def is_numeric(dimension: Choices) -> bool:
    """Return True if all choices are numbers."""
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in dimension.stored)


def get_axis_position(dimension: Dimension, result: TrialResult) -> float:
    value = result.values[dimension.path]
    return float(dimension.texts.index(str(value))) if isinstance(dimension, Choices) else float(value)


def build_contours(outcome: SearchOutcome, importance: dict[str, float] | None) -> list[Section]:
    """Return contour maps of at most MAX_CONTOURS pairs of parameters, the most important ones first if known."""
    measured = [result for result in outcome.results if result.is_measured]
    if len(outcome.space.dimensions) < 2 or len(measured) < 3:  # two points span no area
        return []
    order = list(importance or outcome.space.paths)
    dimensions = sorted(outcome.space.dimensions, key=lambda dimension: order.index(dimension.path))
    pairs = list(combinations(dimensions, 2))[:MAX_CONTOURS]
    text = "Colour between the dots is interpolated; where no trial is near, nothing is drawn."
    charts: list[Part] = [draw_contours(outcome, measured, *pair) for pair in pairs]
    return [Section("Contours", text, charts)]


def draw_contours(outcome: SearchOutcome, measured: list[TrialResult], x: Dimension, y: Dimension) -> ContourMap:
    metric, verdict = outcome.request.metric, outcome.verdict
    points = [
        Measurement(
            get_axis_position(x, result),
            get_axis_position(y, result),
            scale_metric(result.value, metric) or 0.0,
            f"{result.name}: {describe_values(result.values)}: {format_value(result.value, metric)}",
        )
        for result in measured
    ]
    best = measured.index(verdict.best) if verdict else None
    return ContourMap(
        f"{x.path} and {y.path}", make_axis(x), make_axis(y), metric, points, best, f" {find_unit(metric)}".rstrip()
    )


def make_axis(dimension: Dimension) -> ContourAxis:
    if isinstance(dimension, Choices):
        return ContourAxis(dimension.path, 0, len(dimension.texts) - 1, names=dimension.texts)
    return ContourAxis(dimension.path, dimension.low, dimension.high, dimension.log)


def build_trial_table(outcome: SearchOutcome) -> Table:
    metric, paths = outcome.request.metric, outcome.space.paths
    rows = [
        [
            result.name,
            *(format_setting(result.values[path]) if path in result.values else None for path in paths),
            None if result.value is None else format_value(result.value, metric),
            result.seconds,
            f"{result.state}: {result.reason}" if result.reason else result.state,
        ]
        for result in order_results(outcome)
    ]
    return Table(["trial", *paths, metric, "seconds", "state"], rows)
