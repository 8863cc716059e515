"""The page of a comparison of two runs without dumps: both loss curves, and the step from which they differ."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from viaduct.comparison.curves import Curve, CurveComparison
from viaduct.comparison.report import shorten_paths
from viaduct.reporting import Callout, Facts, LineChart, Page, Remark, Section, Series, Tile, Tone, write_page
from viaduct.reporting.line_chart import LOG_SCALE_RATIO

ADVICE = (
    "Dump both runs at this step and compare the tensors: viaduct train … --dump-steps {step} --deterministic, then "
    "viaduct compare LEFT RIGHT --explain."
)


def write_curves_report(path: Path, curves: CurveComparison) -> None:
    first = curves.first_difference
    # A log counts steps from 1, a dump from 0.
    remarks = [] if first is None else [Remark("What to try", ADVICE.format(step=max(0, first.step - 1)))]
    tone: Tone = "good" if curves.exit_code == 0 else "bad"
    both = [Series("left", curves.steps, curves.left_loss), Series("right", curves.steps, curves.right_loss)]
    sections = [
        Section("Loss", describe_losses(curves), [LineChart("Loss", "step", "loss", both), *draw_difference(curves)]),
        *make_evaluation_sections(curves),
        Section("Runs", "", [make_facts("left", curves.left), make_facts("right", curves.right)]),
    ]
    names = shorten_paths(curves.left.path, curves.right.path)
    page = Page(
        f"{names[0]} against {names[1]}",
        f"Loss of the left run, {curves.left.path}, against the right one, {curves.right.path}",
        make_tiles(curves),
        sections,
        [Callout(tone, curves.headline[:1].upper() + curves.headline[1:], remarks)],
        kind="comparison of loss curves",
    )
    write_page(page, path)


def make_tiles(curves: CurveComparison) -> list[Tile]:
    last = f"at step {curves.steps[-1]:,}"
    return [
        Tile("common steps", f"{len(curves.steps):,}"),
        Tile("part at step", describe_first_difference(curves), "of the common steps", good=curves.exit_code == 0),
        Tile("last loss, left", f"{curves.left_loss[-1]:.4g}", last),
        Tile("last loss, right", f"{curves.right_loss[-1]:.4g}", last),
    ]


def describe_first_difference(curves: CurveComparison) -> str:
    if curves.first_difference is not None:
        return f"{curves.first_difference.step:,}"
    return "no finite loss" if curves.nonfinite_steps.size else "none"


def describe_losses(curves: CurveComparison) -> str:
    text = "Every step that both runs logged."
    equal = bool(np.isfinite(curves.left_loss).all() and (curves.difference == 0).all())
    return f"{text} The logged losses are all equal, so only one line is visible." if equal else text


def draw_difference(curves: CurveComparison) -> list[LineChart]:
    """Return the chart of the signed difference, or of its magnitude if that spans decades; none for equal curves."""
    difference = curves.difference
    size = np.abs(difference[np.isfinite(difference)])
    if not size.any():
        return []
    if size.max() > LOG_SCALE_RATIO * size[size > 0].min():
        title, name = "Size of the difference", "|left − right|"
        return [LineChart(title, "step", name, [Series(name, curves.steps, np.abs(difference))])]
    return [LineChart("Difference", "step", "left − right", [Series("left − right", curves.steps, difference)])]


def make_evaluation_sections(curves: CurveComparison) -> list[Section]:
    if not (curves.left.evaluations and curves.right.evaluations):
        return []
    both = [make_evaluation_series("left", curves.left), make_evaluation_series("right", curves.right)]
    chart = LineChart("Validation top-1", "step", "accuracy", both, log_y=False, unit="%")
    return [Section("Evaluations", "", [chart])]


def make_evaluation_series(name: str, curve: Curve) -> Series:
    steps = [evaluation["step"] for evaluation in curve.evaluations]
    return Series(name, steps, [100 * evaluation["top1"] for evaluation in curve.evaluations])


def make_facts(name: str, curve: Curve) -> Facts:
    values = {"run": str(curve.path), "steps": f"{curve.steps.min()} to {curve.steps.max()}"}
    skipped = {"lines that could not be read": str(curve.skipped_lines)} if curve.skipped_lines else {}
    return Facts({**values, **skipped}, caption=name)
