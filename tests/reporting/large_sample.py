"""A page of the parts that hold much: thousands of rows with details, points, a graph; some names are hostile."""

from __future__ import annotations

import math

import numpy as np

from viaduct.reporting import (
    BarChart,
    Block,
    Callout,
    DataColumn,
    Facts,
    GraphDrawing,
    HistogramPair,
    Level,
    Link,
    Node,
    Page,
    Point,
    Remark,
    ScatterChart,
    Section,
    Span,
    Table,
    Tone,
    VirtualTable,
)

HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
TONES: dict[str, Tone] = {"good": "good", "bad": "bad", "flag": "warn", "refused": "muted", "new": "new"}
VERDICTS = ("good", "good", "good", "bad", "flag", "good", "refused", "new")


def large_page(rows: int = 5000) -> Page:
    return Page(
        "large",
        lead=[
            Callout("bad", "They part at conv7.", [Remark("What to try", "Look at it.")], [Link("row 7", "#rows-7")])
        ],
        sections=[
            Section("Points", "", [points(rows)]),
            Section("Graph", "", [graph()]),
            Section("Shapes", "", [histogram(0), BarChart("Distance", ["0", "1", "2–3"], [900, 90, 10])]),
            Section("Rows", "", [large_table(rows)]),
        ],
    )


def large_table(rows: int) -> VirtualTable:
    names = [f"layer{row // 500}.conv{row}" for row in range(rows)]
    if rows > 3:
        names[3] = HOSTILE
    errors = np.random.default_rng(0).permutation(rows) * 1e-6
    measured: list[float | None] = [float(error) for error in errors]
    measured[:3] = [math.nan, None, math.inf][:rows]
    return VirtualTable(
        "rows",
        [
            DataColumn("Result", verdicts(rows), 9, tones=TONES, filterable=True),
            DataColumn("Name", names, 30),
            DataColumn("Error", measured, 12),
            DataColumn(
                "Shape", [f"({row % 7}, 3)" for row in range(rows)], 10, orders=[row % 7 for row in range(rows)]
            ),
            DataColumn("Step", [row % 3 for row in range(rows)], 6, filterable=True),
            *(DataColumn(f"Measure {n}", list(np.sin(np.arange(rows) * n)), 12) for n in range(1, 9)),
        ],
        caption="Every tensor",
        details={row: details(row) for row in range(0, rows, 7)},
        download="drift.csv",
        pinned=2,
    )


def verdicts(rows: int) -> list[str]:
    return [VERDICTS[row % len(VERDICTS)] for row in range(rows)]


def details(row: int) -> list[Block]:
    return [
        Facts({"name": HOSTILE, "row": row}),
        Link("follows from row 3", "#rows-3"),
        histogram(row),
        BarChart("ULP", ["0", "1", HOSTILE], [5, 3, 1]),
        Table(["position", "left", "right"], [["(0, 1)", 0.5, 0.25], ["(3, 3)", 1.5, HOSTILE]], "Largest errors"),
    ]


def histogram(seed: int) -> HistogramPair:
    random = np.random.default_rng(seed)
    values = random.normal(0, 1, 5000), random.normal(0.3, 1, 5000)
    left, right = (np.histogram(side, 40, (-4, 4))[0].tolist() for side in values)
    return HistogramPair("Values", -4, 4, left, right, "npu", "gpu")


def points(rows: int) -> ScatterChart:
    random = np.random.default_rng(5)
    errors = 10 ** random.normal(-5, 0.5, rows)
    errors[:2] = [0.0, math.nan][:rows]
    dots = [
        Point(row, float(errors[row]), TONES[verdict], f"conv{row}" if row != 3 else HOSTILE, f"#rows-{row}")
        for row, verdict in enumerate(verdicts(rows))
    ]
    spans = [Span(start, start + 999, f"layer{start // 1000}") for start in range(0, rows, 1000)]
    legend: list[tuple[Tone, str]] = [("good", "good"), ("bad", "bad"), ("warn", "flag"), ("muted", "refused")]
    levels = [Level(1e-4, "threshold")]
    return ScatterChart("Drift", "order", "error", dots, levels, spans, legend, marked=min(7, rows - 1), mark="origin")


def graph() -> GraphDrawing:
    nodes = [
        Node("input", "good", "layer1.0.relu", "good, 10⁻⁶", "#rows-1"),
        Node("conv", "good", "layer1.1.conv1"),
        Node("bn", "bad", "layer1.1.bn1", "BatchNorm2d, 0.3", "#rows-7", focus=True),
        Node("add", "bad", "layer1.1.add", address="#rows-11"),
        Node("after", "muted", "a" * 80),
        Node("hostile", "new", HOSTILE),
    ]
    edges = [
        *(("input", "conv"), ("conv", "bn"), ("bn", "add"), ("input", "add"), ("add", "after")),
        *(("add", "hostile"), ("after", "input"), ("nobody", "add")),
    ]
    return GraphDrawing("Around the origin", nodes, edges)
