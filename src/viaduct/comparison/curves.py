"""Two runs without dumps: where their loss curves part beyond noise.

Each curve's noise is measured from its own steps, robustly and in a running window. The curves have parted at the first
step from which their smoothed difference keeps its sign and stays beyond the noise of both. Runs that merely draw
other batches part for a moment and meet again; that is not counted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from viaduct.errors import BadData

Array = NDArray[Any]
FILE = "metrics.jsonl"
SMOOTH = 9  # steps whose median is taken of the difference
AROUND = 31  # steps around each from which the noise is measured
BEYOND = 2.0  # times the noise of one step; a median of nine has less than half of it
STAYS = 10  # steps in a row, or all that are left
LARGEST = 1 << 30


@dataclass(frozen=True)
class Curve:
    """The loss of every logged step of one run, and its evaluations."""

    path: Path
    steps: Array
    loss: Array
    evaluations: tuple[dict[str, float], ...] = ()
    skipped_lines: int = 0


@dataclass(frozen=True)
class Parting:
    """Where two curves part."""

    step: int
    left: float
    right: float
    noise: float


@dataclass(frozen=True)
class Curves:
    """Two curves on their common steps, and where they part; `parting` None: they do not."""

    left: Curve
    right: Curve
    steps: Array
    left_loss: Array
    right_loss: Array
    parting: Parting | None

    @property
    def exit_code(self) -> int:
        """0: they agree within noise; 1: they part."""
        return 0 if self.parting is None else 1

    @property
    def headline(self) -> str:
        if self.parting is None:
            return f"the loss curves agree within noise over {len(self.steps):,} common steps."
        at = self.parting
        gap = at.left - at.right
        return (
            f"the loss curves part at step {at.step}: {at.left:.4g} on the left, {at.right:.4g} on the right; the gap "
            f"of {gap:+.3g} stays beyond the noise of {at.noise:.2g}."
        )


def compare_curves(left: Path, right: Path) -> Curves:
    """Read both runs, and find where they part."""
    curves = read_curve(left), read_curve(right)
    steps, at_left, at_right = np.intersect1d(curves[0].steps, curves[1].steps, return_indices=True)
    if not steps.size:
        spans = [f"{curve.path} has steps {curve.steps.min()} to {curve.steps.max()}" for curve in curves]
        raise BadData("the two runs logged no step in common.", *spans)
    losses = curves[0].loss[at_left], curves[1].loss[at_right]
    return Curves(*curves, steps, *losses, parting(steps, *losses))


def has_curve(path: Path) -> bool:
    return (path / FILE).is_file()


def read_curve(run: Path) -> Curve:
    """RUN/metrics.jsonl; a line that is cut off is counted, not fatal."""
    path = run / FILE
    losses: dict[int, float] = {}
    evaluations, skipped = [], 0
    for line in lines_of(path):
        try:
            record = json.loads(line)
            kind, step = record["kind"], int(record["step"])
            if kind == "log":
                losses.update(logged(record, step))
            elif kind == "evaluation":
                evaluations.append({name: number(record.get(name)) for name in ("step", "loss", "top1")})
        except (ValueError, KeyError, TypeError, RecursionError):
            skipped += 1
    if not losses:
        raise BadData(f"{path} holds no loss.", "It should have lines of kind log, as `viaduct train` writes them.")
    steps = np.array(sorted(losses))
    return Curve(run, steps, np.array([losses[step] for step in steps.tolist()]), tuple(evaluations), skipped)


def lines_of(path: Path) -> list[str]:
    try:
        if path.stat().st_size > LARGEST:
            raise BadData(f"{path} is larger than {LARGEST >> 30} GiB.")
        return path.read_text(errors="replace").splitlines()
    except OSError as error:
        raise BadData(f"{path} cannot be read: {error.strerror}.") from None


def logged(record: dict[str, Any], step: int) -> dict[int, float]:
    """Every step's loss where the line has them all, else the line's own."""
    every = record.get("losses")
    if isinstance(every, list) and every:
        return {step - len(every) + 1 + place: number(loss) for place, loss in enumerate(every)}
    return {step: number(record["loss"])}


def number(value: Any) -> float:
    """JSON has no NaN: a loss that was not finite is null."""
    return math.nan if value is None else float(value)


def parting(steps: Array, left: Array, right: Array) -> Parting | None:
    """The first step from which the curves stay apart."""
    lost = np.isnan(left) != np.isnan(right)
    noise = np.hypot(running_noise(left), running_noise(right))
    difference = smoothed(left - right)
    apart = np.where(np.abs(difference) > BEYOND * noise, np.sign(difference), 0)
    for place in range(len(steps)):
        if lost[place] or stays(apart[place : place + STAYS]):
            values = [float(smoothed(side)[place]) for side in (left, right)]
            if lost[place]:
                values = [float(left[place]), float(right[place])]
            return Parting(int(steps[place]), values[0], values[1], float(noise[place]))
    return None


def stays(signs: Sequence[float] | Array) -> bool:
    """Beyond the noise, all on one side; the last few steps of a run are too few to tell."""
    return len(signs) >= min(STAYS, 5) and signs[0] != 0 and bool(np.all(np.asarray(signs) == signs[0]))


def running_noise(values: Array) -> Array:
    """What one step's loss varies by: from differences of neighbours, so that a slope does not count."""
    if len(values) < 3:
        return np.zeros(len(values))
    jumps = np.abs(np.diff(values)) / math.sqrt(2)
    jumps = np.append(jumps, jumps[-1])
    return 1.4826 * medians(jumps, AROUND)


def smoothed(values: Array) -> Array:
    return medians(values, SMOOTH) if len(values) >= 2 * SMOOTH else values


def medians(values: Array, width: int) -> Array:
    """Running medians, with fewer values at the ends; NaN is left out."""
    half = min(width, len(values)) // 2
    padded = np.concatenate([np.full(half, np.nan), values, np.full(half, np.nan)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1)
    known = ~np.isnan(windows).all(1)
    found = np.full(len(values), np.nan)
    found[known] = np.nanmedian(windows[known], 1)
    return found
