"""Comparison of the loss curves of two runs, left (A) and right (B): first difference, noise, and distance."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from viaduct.comparison.curves import METRICS_FILE, MIN_STEPS, Curve, find_first_difference, finite_or_nan, read_curve
from viaduct.comparison.records import Array
from viaduct.errors import BadData


@dataclass(frozen=True)
class LossDifference:
    """Difference of two curves at their common steps.

    A lost loss is NaN or infinite; two NaN losses do not differ. `area` and `mean_gap` are None if a common step has a
    lost loss; so is `last_gap` if one of the last steps has one.
    """

    common: int  # number of common steps
    only_left: int  # number of steps that only the left run logged
    only_right: int
    first: int | None  # first step whose losses differ at all; None: all are equal
    first_losses: tuple[float, float] | None
    beyond_noise: int | None  # step at which `find_first_difference` says that the curves part; None: nowhere
    noise_measured: bool  # False: too few common steps to measure the noise
    area: float | None  # area between the curves in loss x steps
    mean_gap: float | None
    last_step: int
    last_gap: float | None  # right minus left: median over the last tenth of the common steps, at most nine
    lost_left: int = 0  # number of common steps whose loss is lost in the left curve
    lost_right: int = 0
    first_lost: int | None = None  # first common step with a lost loss in either curve
    lost_in_both: int = 0

    @property
    def is_equal(self) -> bool:
        """True if all common losses are equal, and no curve has a step that the other lacks."""
        return self.first is None and not self.only_left and not self.only_right


def compare_losses(left: Path, right: Path) -> LossDifference | str:
    """Return the difference of two runs' losses, or the reason why they cannot be compared."""
    if missing := [name for name, run in (("A", left), ("B", right)) if not has_log(run)]:
        return f"{' and '.join(missing)} logged no loss."
    try:
        curves = read_curve(left), read_curve(right)
    except BadData as error:
        return error.message
    steps, left_indices, right_indices = np.intersect1d(curves[0].steps, curves[1].steps, return_indices=True)
    if not steps.size:
        return "the runs logged no step in common."
    return measure(curves, steps, curves[0].loss[left_indices], curves[1].loss[right_indices])


def has_log(run: Path) -> bool:
    """Return True if metrics.jsonl is a file with a line that looks like a log line; it is not parsed."""
    file = run / METRICS_FILE
    if file.is_file():
        with contextlib.suppress(OSError), file.open("rb") as opened:
            return any(b'"log"' in line for line in opened)
    return False


def measure(curves: tuple[Curve, Curve], steps: Array, left: Array, right: Array) -> LossDifference:
    """Measure the difference of two curves; `left` and `right` are their losses at the common steps."""
    unequal = np.flatnonzero((left != right) & ~(np.isnan(left) & np.isnan(right)))
    first = int(unequal[0]) if unequal.size else None
    beyond = find_first_difference(steps, left, right) if steps.size >= MIN_STEPS and first is not None else None
    gap = finite_or_nan(right) - finite_or_nan(left)
    lost_left, lost_right = ~np.isfinite(left), ~np.isfinite(right)
    lost = np.flatnonzero(lost_left | lost_right)
    last_gaps = gap[-max(1, min(9, steps.size // 10)) :]
    return LossDifference(
        common=int(steps.size),
        only_left=len(curves[0].steps) - int(steps.size),
        only_right=len(curves[1].steps) - int(steps.size),
        first=None if first is None else int(steps[first]),
        first_losses=None if first is None else (float(left[first]), float(right[first])),
        beyond_noise=beyond.step if beyond else None,
        noise_measured=bool(steps.size >= MIN_STEPS),
        area=None if lost.size or steps.size < 2 else integrate(steps, np.abs(gap)),
        mean_gap=None if lost.size else float(np.abs(gap).mean()),
        last_step=int(steps[-1]),
        last_gap=float(np.median(last_gaps)) if np.isfinite(last_gaps).all() else None,
        lost_left=int(lost_left.sum()),
        lost_right=int(lost_right.sum()),
        first_lost=int(steps[lost[0]]) if lost.size else None,
        lost_in_both=int((lost_left & lost_right).sum()),
    )


def integrate(steps: Array, heights: Array) -> float:
    """Return the area under the line through these points."""
    widths = np.diff(steps.astype(np.float64))
    return float((widths * (heights[1:] + heights[:-1]) / 2).sum())


def describe_losses(losses: LossDifference | str) -> list[str]:
    """Return sentences about the difference of two runs' losses, or why they were not compared."""
    if isinstance(losses, str):
        return [f"Losses: not compared: {losses}"]
    if losses.first is None or losses.first_losses is None:
        lines = [f"Losses: {losses.common - losses.lost_in_both:,} exactly equal, as recorded."]
    else:
        step, (left, right) = losses.first, losses.first_losses
        lines = [f"Losses: first differ at step {step:,} of {losses.common:,} compared: {left:.9g} and {right:.9g}."]
        lines += describe_gap(losses)
    if losses.first_lost is not None:
        counts = " and ".join(
            f"{count:,} in {name}" for name, count in (("A", losses.lost_left), ("B", losses.lost_right)) if count
        )
        lines.append(
            f"Not comparable where the loss is NaN or infinite: {counts} of {losses.common:,} steps, "
            f"first at step {losses.first_lost:,}."
        )
    unmatched = [
        f"{count:,} only in {name}" for name, count in (("A", losses.only_left), ("B", losses.only_right)) if count
    ]
    if unmatched:
        lines.append(f"Steps that were not compared: {', '.join(unmatched)}.")
    return lines


def describe_gap(losses: LossDifference) -> list[str]:
    """Return the sentences about the distance of two different curves."""
    lines = []
    if not losses.noise_measured:
        lines.append(f"Too few common steps to tell a difference from noise ({MIN_STEPS} are needed).")
    elif losses.beyond_noise is None:
        lines.append("The curves nowhere stay apart beyond their noise (a few steps do not count).")
    else:
        step = f"{losses.beyond_noise:,}"
        lines.append(f"The curves part at step {step}: beyond their noise, or only one loss is finite.")
    if losses.area is not None and losses.mean_gap is not None and math.isfinite(losses.area):
        lines.append(f"Area between them: {losses.area:.4g} loss x steps, {losses.mean_gap:.4g} a step on average.")
    if losses.last_gap is not None:
        lines.append(f"At the end, step {losses.last_step:,}: B {losses.last_gap:+.4g} against A.")
    return lines
