"""Comparison of two runs without dumps: the first step from which their loss curves differ by more than noise.

The noise of a curve is measured from its own steps, in a running window. The curves differ from the first step at which
only one loss is finite, or from which their smoothed difference keeps its sign and stays beyond twice the noise of both
for APART_STEPS steps, or up to the end if MIN_STEPS or more are left. Runs with other batches usually differ for fewer
steps and agree again, which does not count. Steps are those that both runs logged.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from viaduct.comparison.records import Array
from viaduct.errors import BadData

METRICS_FILE = "metrics.jsonl"
SMOOTHING_STEPS = 9  # length of the running median of the difference
NOISE_WINDOW = 31  # steps around each step (itself included) from which its noise is measured
MIN_NOISES = 2.0  # a smoothed difference counts if it is larger than this many times the noise of the step
APART_STEPS = 10  # consecutive steps that must count; at the end of the curves MIN_STEPS are enough
MIN_STEPS = 5  # fewer steps cannot tell a difference from noise
MAX_BYTES = 1 << 30  # of metrics.jsonl


@dataclass(frozen=True)
class Curve:
    """The loss of every logged step of one run, and its evaluations."""

    path: Path  # of the run
    steps: Array
    loss: Array
    evaluations: tuple[dict[str, float], ...] = ()  # with the keys step, loss and top1; shown, but not compared
    skipped_lines: int = 0
    is_last_line_skipped: bool = False

    @property
    def skipped_note(self) -> str:
        """Return a sentence about the skipped lines; empty if there are none."""
        if not self.skipped_lines:
            return ""
        lines = "1 line" if self.skipped_lines == 1 else f"{self.skipped_lines:,} lines"
        question = "; the last one may be incomplete: was the run stopped, or is it still running?"
        return f"{lines} of {METRICS_FILE} could not be read{question if self.is_last_line_skipped else ''}"


@dataclass(frozen=True)
class FirstDifference:
    """The first step from which two curves differ, with both losses: if both are finite, their running medians."""

    step: int
    left: float
    right: float
    noise: float  # of the difference at that step: the root of the sum of both curves' squared noises


@dataclass(frozen=True)
class CurveComparison:
    """Two curves on their common steps, and their first difference.

    Steps at which both losses are NaN or infinite are no difference, and do not count as agreement. The curves pass if
    there is neither such a step nor a first difference.
    """

    left: Curve
    right: Curve
    steps: Array
    left_loss: Array
    right_loss: Array
    first_difference: FirstDifference | None

    @property
    def nonfinite_steps(self) -> Array:
        """Return the steps at which neither side has a finite loss."""
        return self.steps[~np.isfinite(self.left_loss) & ~np.isfinite(self.right_loss)]

    @property
    def difference(self) -> Array:
        """Return left minus right; NaN if a loss is not finite."""
        return finite_or_nan(self.left_loss) - finite_or_nan(self.right_loss)

    @property
    def exit_code(self) -> int:
        """Return 0 if the curves agree within noise, 1 if they differ or if neither loss is finite at some step."""
        return 1 if self.first_difference is not None or self.nonfinite_steps.size else 0

    @property
    def headline(self) -> str:
        return " ".join(part for part in (self._describe_result(), self._describe_uncompared()) if part)

    def _describe_result(self) -> str:
        first, nonfinite = self.first_difference, self.nonfinite_steps
        if first is None and nonfinite.size:
            return (
                f"the loss is NaN or infinite on both sides at {nonfinite.size:,} of {len(self.steps):,} common steps, "
                f"first at step {nonfinite[0]}: the curves do not pass."
            )
        if first is None:
            return f"the loss curves agree within noise over {len(self.steps):,} common steps."
        values = f"{first.left:.4g} on the left, {first.right:.4g} on the right"
        if not math.isfinite(first.left - first.right):
            return f"the loss curves part at step {first.step}: {values}."
        steps = min(APART_STEPS, int((self.steps >= first.step).sum()))  # as many as were checked
        return (
            f"the loss curves part at step {first.step}: {values}; the gap of {first.left - first.right:+.3g} stays "
            f"beyond {MIN_NOISES:g} times the noise of {first.noise:.2g} for {steps} steps or more."
        )

    def _describe_uncompared(self) -> str:
        unshared = [
            f"{len(curve.steps) - len(self.steps):,} on the {name}"
            for name, curve in (("left", self.left), ("right", self.right))
            if len(curve.steps) > len(self.steps)
        ]
        return f"Steps that only one run logged were not compared: {', '.join(unshared)}." if unshared else ""

    @property
    def notes(self) -> tuple[str, ...]:
        """Return a note for each side with lines that could not be read."""
        sides = (("left", self.left), ("right", self.right))
        return tuple(f"{name}: {curve.skipped_note}" for name, curve in sides if curve.skipped_note)


def compare_curves(left: Path, right: Path) -> CurveComparison:
    """Read the loss curves of both runs, and find their first difference; raise BadData for too few common steps."""
    curves = read_curve(left), read_curve(right)
    steps, at_left, at_right = np.intersect1d(curves[0].steps, curves[1].steps, return_indices=True)
    if not steps.size:
        spans = [f"{curve.path} has steps {curve.steps.min()} to {curve.steps.max()}" for curve in curves]
        raise BadData("the two runs logged no step in common.", *spans)
    if steps.size < MIN_STEPS:
        raise BadData(
            f"the two runs have {steps.size} logged {'step' if steps.size == 1 else 'steps'} in common: too few to "
            f"tell a difference from noise, which takes {MIN_STEPS}.",
            "Log every step on both sides, or compare dumps: viaduct train … --dump-steps 0.",
        )
    losses = curves[0].loss[at_left], curves[1].loss[at_right]
    return CurveComparison(*curves, steps, *losses, find_first_difference(steps, *losses))


def has_curve(path: Path) -> bool:
    return (path / METRICS_FILE).is_file()


def read_curve(run: Path) -> Curve:
    """Read RUN/metrics.jsonl, and count lines that cannot be read; raise BadData if there is no loss.

    Of a step that was logged twice, as after a resumption, the last loss counts.
    """
    path = run / METRICS_FILE
    losses: dict[int, float] = {}
    evaluations, skipped, is_skipped = [], 0, False
    for line in read_lines(path):
        try:
            is_skipped = False
            record = json.loads(line)
            kind, step = record["kind"], parse_step(record["step"])
            if kind == "log":
                losses.update(read_losses(record, step))
            elif kind == "evaluation":
                evaluations.append({name: parse_number(record.get(name)) for name in ("step", "loss", "top1")})
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            skipped, is_skipped = skipped + 1, True
    if not losses:
        raise BadData(f"{path} holds no loss.", "It should have lines of kind log, as `viaduct train` writes them.")
    steps = np.array(sorted(losses))
    loss = np.array([losses[step] for step in steps.tolist()])
    return Curve(run, steps, loss, tuple(evaluations), skipped, is_skipped)


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file of at most 1 GiB."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BadData(f"{path} is larger than {MAX_BYTES >> 30} GiB.")
        return path.read_text(errors="replace").splitlines()
    except OSError as error:
        raise BadData(f"{path} cannot be read: {error.strerror}.") from None


def read_losses(record: dict[str, Any], step: int) -> dict[int, float]:
    """Return the loss of every step since the last line if the line lists them, else the line's own loss."""
    losses = record.get("losses")
    if isinstance(losses, list) and losses:
        return {step - len(losses) + 1 + index: parse_number(loss) for index, loss in enumerate(losses)}
    return {step: parse_number(record["loss"])}


def parse_step(value: Any) -> int:
    step = int(value)
    if not 0 <= step < 1 << 62:
        raise ValueError(f"{value!r} is not a step")
    return step


def parse_number(value: Any) -> float:
    """Return a number, or NaN for null: JSON has no NaN."""
    return math.nan if value is None else float(value)


def find_first_difference(steps: Array, left: Array, right: Array) -> FirstDifference | None:
    """Return the first step from which the curves stay apart, or at which only one loss is finite."""
    raw, is_one_sided = (left, right), np.isfinite(left) != np.isfinite(right)
    left, right = finite_or_nan(left), finite_or_nan(right)
    noise = np.hypot(estimate_noise(left), estimate_noise(right))
    difference = smooth_by_median(left - right)
    apart = np.where(np.abs(difference) > MIN_NOISES * noise, np.sign(difference), 0)
    for index in range(len(steps)):
        signs = apart[index : index + APART_STEPS]  # 0: a difference within noise
        stays_apart = len(signs) >= MIN_STEPS and signs[0] != 0 and bool((signs == signs[0]).all())
        if is_one_sided[index] or stays_apart:
            sides = raw if is_one_sided[index] else (smooth_by_median(left), smooth_by_median(right))
            values = [float(side[index]) for side in sides]
            return FirstDifference(int(steps[index]), values[0], values[1], float(noise[index]))
    return None


def finite_or_nan(values: Array) -> Array:
    return np.where(np.isfinite(values), values, np.nan)


def estimate_noise(values: Array) -> Array:
    """Estimate the standard deviation of each step's loss from the differences of neighbouring steps."""
    jumps = np.abs(np.diff(values)) / math.sqrt(2)
    jumps = np.append(jumps, jumps[-1])
    return 1.4826 * compute_running_medians(jumps, NOISE_WINDOW)  # the factor turns a median into a standard deviation


def smooth_by_median(values: Array) -> Array:
    """Return running medians, or the values if there are fewer than two windows of them."""
    return compute_running_medians(values, SMOOTHING_STEPS) if len(values) >= 2 * SMOOTHING_STEPS else values


def compute_running_medians(values: Array, width: int) -> Array:
    """Return running medians over `width` values (an odd number), fewer at the ends; NaN does not count."""
    half = min(width, len(values)) // 2
    padded = np.concatenate([np.full(half, np.nan), values, np.full(half, np.nan)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1)
    known = ~np.isnan(windows).all(1)
    medians = np.full(len(values), np.nan)
    medians[known] = np.nanmedian(windows[known], 1)
    return medians
