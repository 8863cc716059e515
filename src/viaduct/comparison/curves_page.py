"""The page of two runs without dumps: both loss curves, and where they part."""

from __future__ import annotations

from pathlib import Path

from viaduct.comparison.curves import Curve, Curves
from viaduct.reporting import Callout, Facts, LineChart, Page, Remark, Section, Series, Tile, Tone, write_page

ADVICE = (
    "Dump both runs at this step and compare the tensors: viaduct train … --dump-steps {step} --deterministic, then "
    "viaduct compare LEFT RIGHT --explain."
)


def write_curves_report(path: Path, curves: Curves) -> None:
    """Write the page."""
    parting = curves.parting
    remarks = [] if parting is None else [Remark("What to try", ADVICE.format(step=max(0, parting.step - 1)))]
    tone: Tone = "good" if curves.exit_code == 0 else "bad"
    sections = [
        Section("Loss", "Every step that both runs logged.", [loss_chart(curves), difference_chart(curves)]),
        Section("Evaluations", "", [evaluation_chart(curves)]),
        Section("Runs", "", [facts("left", curves.left), facts("right", curves.right)]),
    ]
    if not (curves.left.evaluations and curves.right.evaluations):
        del sections[1]
    subtitle = f"Loss of the left run, {curves.left.path}, against the right one, {curves.right.path}"
    lead = [Callout(tone, curves.headline, remarks, [])]
    write_page(Page("Loss curves", subtitle, tiles(curves), sections, lead), path)


def tiles(curves: Curves) -> list[Tile]:
    parting = curves.parting
    return [
        Tile("common steps", f"{len(curves.steps):,}"),
        Tile("part at step", "never" if parting is None else f"{parting.step:,}", good=curves.exit_code == 0),
        Tile("last loss, left", f"{curves.left_loss[-1]:.4g}"),
        Tile("last loss, right", f"{curves.right_loss[-1]:.4g}"),
    ]


def loss_chart(curves: Curves) -> LineChart:
    both = [Series("left", curves.steps, curves.left_loss), Series("right", curves.steps, curves.right_loss)]
    return LineChart("Loss", "step", "loss", both)


def difference_chart(curves: Curves) -> LineChart:
    difference = Series("left - right", curves.steps, curves.difference)
    return LineChart("Difference", "step", "loss", [difference])


def evaluation_chart(curves: Curves) -> LineChart:
    both = [of_evaluations("left", curves.left), of_evaluations("right", curves.right)]
    return LineChart("Validation top-1", "step", "share right", both)


def of_evaluations(name: str, curve: Curve) -> Series:
    return Series(name, [one["step"] for one in curve.evaluations], [one["top1"] for one in curve.evaluations])


def facts(name: str, curve: Curve) -> Facts:
    values = {"run": str(curve.path), "steps": f"{curve.steps.min()} to {curve.steps.max()}"}
    skipped = {"lines that could not be read": str(curve.skipped_lines)} if curve.skipped_lines else {}
    return Facts({**values, **skipped}, caption=name)
