"""How the loss curves of two runs differ: from which step on, beyond noise, by how much in all."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from viaduct.comparison.curves import FEWEST, FILE, Array, Curve, find_parting, finite_or_nan, read_curve
from viaduct.errors import BadData


@dataclass(frozen=True)
class LossDifference:
    """Two curves on their common steps. `first`: the first step whose losses differ at all; None: all are equal.

    A loss that is NaN or infinite has no distance from another loss: `area` and `mean_gap` are None if a common step
    has such a loss, `last_gap` is None if one of the last steps has.
    """

    common: int
    only_left: int
    only_right: int
    first: int | None
    first_losses: tuple[float, float] | None
    beyond_noise: int | None
    """The first step from which on the curves stay apart beyond the noise of both."""
    noise_measured: bool
    """False: too few common steps to tell a difference from noise."""
    area: float | None
    """Area between the curves in loss times steps, from the first to the last common step."""
    mean_gap: float | None
    last_step: int
    last_gap: float | None
    """Second minus first: the median over the last tenth of the common steps, at most nine."""
    lost_left: int = 0
    """Common steps whose loss is NaN or infinite in the first curve."""
    lost_right: int = 0
    first_lost: int | None = None
    lost_in_both: int = 0

    @property
    def is_equal(self) -> bool:
        """True if all common losses are equal, and no curve has a step that the other lacks."""
        return self.first is None and not self.only_left and not self.only_right


def compare_losses(left: Path, right: Path) -> LossDifference | str:
    """Return how two runs' losses differ; the reason as a sentence where they cannot be compared."""
    if missing := [name for name, run in (("A", left), ("B", right)) if not has_log(run)]:
        return f"{' and '.join(missing)} logged no loss."
    try:
        curves = read_curve(left), read_curve(right)
    except BadData as error:
        return error.what
    steps, at_left, at_right = np.intersect1d(curves[0].steps, curves[1].steps, return_indices=True)
    if not steps.size:
        return "the runs logged no step in common."
    return measure(curves, steps, curves[0].loss[at_left], curves[1].loss[at_right])


def has_log(run: Path) -> bool:
    """Return True if a run has a plain file with a log line in it; a pipe in its place would never end."""
    file = run / FILE
    if file.is_file():
        with contextlib.suppress(OSError), file.open("rb") as opened:
            return any(b'"log"' in line for line in opened)
    return False


def measure(curves: tuple[Curve, Curve], steps: Array, left: Array, right: Array) -> LossDifference:
    unequal = np.flatnonzero((left != right) & ~(np.isnan(left) & np.isnan(right)))
    first = int(unequal[0]) if unequal.size else None
    apart = find_parting(steps, left, right) if steps.size >= FEWEST and first is not None else None
    gap = finite_or_nan(right) - finite_or_nan(left)
    lost = [~np.isfinite(side) for side in (left, right)]
    either = np.flatnonzero(lost[0] | lost[1])
    return LossDifference(
        common=int(steps.size),
        only_left=len(curves[0].steps) - int(steps.size),
        only_right=len(curves[1].steps) - int(steps.size),
        first=None if first is None else int(steps[first]),
        first_losses=None if first is None else (float(left[first]), float(right[first])),
        beyond_noise=apart.step if apart else None,
        noise_measured=bool(steps.size >= FEWEST),
        area=None if either.size else integrate(steps, np.abs(gap)),
        mean_gap=None if either.size else float(np.abs(gap).mean()),
        last_step=int(steps[-1]),
        last_gap=finite_median(gap[-max(1, min(9, steps.size // 10)) :]),
        lost_left=int(lost[0].sum()),
        lost_right=int(lost[1].sum()),
        first_lost=int(steps[either[0]]) if either.size else None,
        lost_in_both=int((lost[0] & lost[1]).sum()),
    )


def integrate(steps: Array, heights: Array) -> float | None:
    """Return the area under the line through these points; None for fewer than two points."""
    if steps.size < 2:
        return None
    widths = np.diff(steps.astype(np.float64))
    return float((widths * (heights[1:] + heights[:-1]) / 2).sum())


def finite_median(values: Array) -> float | None:
    """Return the median; None where a value is NaN or infinite."""
    return float(np.median(values)) if np.isfinite(values).all() else None


def describe_losses(found: LossDifference | str) -> list[str]:
    """Return the sentences about the curves."""
    if isinstance(found, str):
        return [f"Losses: not compared: {found}"]
    lines = [describe_first(found)]
    if found.first is not None:
        lines += describe_gap(found)
    lines += describe_lost(found)
    if alone := [
        f"{count:,} only in {name}" for name, count in (("A", found.only_left), ("B", found.only_right)) if count
    ]:
        lines.append(f"Steps that were not compared: {', '.join(alone)}.")
    return lines


def describe_first(found: LossDifference) -> str:
    if found.first is None or found.first_losses is None:
        return f"Losses: {found.common - found.lost_in_both:,} equal in every bit."
    left, right = found.first_losses
    return f"Losses: first differ at step {found.first:,} of {found.common:,} compared: {left:.9g} and {right:.9g}."


def describe_lost(found: LossDifference) -> list[str]:
    """Return the sentence about losses that are NaN or infinite, which cannot be compared."""
    if found.first_lost is None:
        return []
    counts = [f"{count:,} in {name}" for name, count in (("A", found.lost_left), ("B", found.lost_right)) if count]
    return [
        f"Not comparable where the loss is NaN or infinite: {' and '.join(counts)} of {found.common:,} steps, "
        f"first at step {found.first_lost:,}."
    ]


def describe_gap(found: LossDifference) -> list[str]:
    lines = []
    if not found.noise_measured:
        lines.append(f"Too few common steps to tell a difference from noise ({FEWEST} are needed).")
    elif found.beyond_noise is None:
        lines.append("The curves stay within each other's noise.")
    else:
        lines.append(f"The curves stay apart beyond their noise from step {found.beyond_noise:,} on.")
    if found.area is not None and found.mean_gap is not None and math.isfinite(found.area):
        lines.append(f"Area between them: {found.area:.4g} loss x steps, {found.mean_gap:.4g} a step on average.")
    if found.last_gap is not None:
        lines.append(f"At the end, step {found.last_step:,}: B {found.last_gap:+.4g} against A.")
    return lines
