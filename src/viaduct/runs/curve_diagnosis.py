"""Diagnosis of the learning rate from a loss curve: too low, good, too high, or cannot say.

    diagnose(losses).text     The loss fell evenly from 2.31 to 2.05 and still falls, 45 % of the fall in the …

Too high: the loss rises, jumps or ends in NaN. Too low: it falls evenly and is still high at the end. Good: it has
fallen well below its start. A curve that fell a little and then stays flat may come from a rate that is somewhat too
high or from a network that can learn no more, so the diagnosis is "cannot say". Differences count only if they are
larger than the curve's own noise and than MIN_CHANGE.

If the rates of the steps are known, only the part between the end of the warm-up and the step where the rate falls
below half of its peak is read, because a loss flattens when the rate decays. If this part shows nothing, the whole
curve can still show that the rate is good.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, median
from typing import Literal

Kind = Literal["too low", "good", "too high", "cannot say"]

MIN_VALUES = 20  # number of values below which no diagnosis is made
SEGMENTS = 10  # equal parts into which a curve is divided
STANDARD_ERRORS = 5.0  # standard errors that a difference must exceed; see `Curve.needed_errors`
MIN_CHANGE = 0.02  # fraction of the first loss below which a change is ignored
CONVERGED = 0.7  # the last loss counts as a good result if it is at most this fraction of the first
EVEN = (0.38, 0.6)
"""A fall is even if a fraction of it between these two lies in the second half of the steps.

For a straight line it is 0.5, for an exponential of one time constant 0.38.
"""
HIDDEN_BY_NOISE = 0.15  # the end of a curve is called flat only if noise can hide at most this fraction of its fall
RISEN = 0.3  # the end of a curve counts as a rise if more than this fraction of the fall is lost again
JUMP_DEVIATIONS = 8.0  # a jump exceeds both neighbours by this many standard deviations
MIN_JUMPS = 0.03  # the loss jumps if at least this fraction of the values are jumps
PEAK = 0.9  # the warm-up ends at this fraction of the highest rate
FLAT = 0.1  # the loss hardly moved if it changed by at most this fraction of the first loss
DECAYED = 0.5  # the rate has decayed below this fraction of the highest rate


@dataclass(frozen=True)
class Diagnosis:
    """Diagnosis of the learning rate, with its evidence."""

    kind: Kind
    text: str
    figures: dict[str, float] = field(default_factory=dict)
    """Loss at the `start` and `end`, and its `noise`. Of a fall also `late_share`, the part of it in the second half of
    the steps, and `share_left`, end / start. Empty if the curve was not measured."""


@dataclass(frozen=True)
class Curve:
    """A loss curve and its statistics."""

    values: list[float]
    start: float  # mean of the first values
    segments: list[float]  # means of SEGMENTS equal parts
    noise: float  # standard deviation around the trend
    error: float  # standard error of a difference between two segments' means
    start_error: float  # standard error of a difference between `start` and a segment's mean

    @property
    def needed_errors(self) -> float:
        """Standard errors that a difference must exceed; more for short curves, whose noise is uncertain."""
        return STANDARD_ERRORS * (1 + 10 / len(self.values))

    @property
    def end(self) -> float:
        """Mean loss of the last tenth."""
        return self.segments[-1]

    @property
    def fall(self) -> float:
        """Start minus end; negative if the loss rose."""
        return self.start - self.end

    def is_change(self, difference: float) -> bool:
        """Return True for a difference between two segments above both the noise and MIN_CHANGE."""
        return difference > max(self.needed_errors * self.error, MIN_CHANGE * abs(self.start))

    def is_change_from_start(self, difference: float) -> bool:
        """Return True for a difference from the first values above both the noise and MIN_CHANGE."""
        return difference > max(self.needed_errors * self.start_error, MIN_CHANGE * abs(self.start))


def diagnose(losses: Sequence[float | None], rates: Sequence[float | None] | None = None) -> Diagnosis:
    """Diagnose the learning rate from a loss curve and, if known, the rates of its steps; None: not logged."""
    finite = [loss for loss in losses if loss is not None and math.isfinite(loss)]
    if ends_in_nan(losses):
        earlier = f" It was {finite[-1]:.4g} before." if finite else ""
        text = f"The loss is NaN or infinite at the end.{earlier} The learning rate is too high, or numbers overflow."
        return Diagnosis("too high", text)
    values, obstacle = select_high_rates(losses, rates)
    if obstacle:
        return Diagnosis("cannot say", obstacle)
    if len(values) < MIN_VALUES:
        qualifier = " with a high rate" if rates is not None else ""
        text = f"The curve has {len(values)} values{qualifier}; {MIN_VALUES} are needed to see its shape."
        return Diagnosis("cannot say", text)
    diagnosis = judge_shape(measure_curve(values), may_decay=rates is None)
    if diagnosis.kind == "cannot say" and rates is not None and len(finite) > len(values):
        whole_curve = judge_shape(measure_curve(finite), may_decay=True)
        return whole_curve if whole_curve.kind == "good" else diagnosis
    return diagnosis


def ends_in_nan(losses: Sequence[float | None]) -> bool:
    """Return True if neither of the last two logged values is finite; a single value may be a skipped step."""
    logged = [loss for loss in losses if loss is not None]
    return bool(logged) and not any(math.isfinite(loss) for loss in logged[-2:])


def select_high_rates(losses: Sequence[float | None], rates: Sequence[float | None] | None) -> tuple[list[float], str]:
    """Return the finite losses between warm-up and decay (all if the rates are not known), or why none can be used."""
    if rates is None:
        return [loss for loss in losses if loss is not None and math.isfinite(loss)], ""
    known = [rate if rate is not None and math.isfinite(rate) else 0.0 for rate in rates]
    if len(known) != len(losses):
        return [], f"There are {len(losses)} losses and {len(known)} rates."
    peak = max(known, default=0.0)
    if not peak > 0:
        return [], "No learning rate above 0 was logged."
    begin = next(index for index, rate in enumerate(known) if rate >= PEAK * peak)
    if begin > 0.8 * len(known):
        text = "The learning rate rises until the last fifth of the curve: too little of it comes after the warm-up."
        return [], text
    end = next((index for index in range(begin, len(known)) if known[index] < DECAYED * peak), len(known))
    return [loss for loss in losses[begin:end] if loss is not None and math.isfinite(loss)], ""


def measure_curve(values: list[float]) -> Curve:
    """Return the statistics of a curve of at least MIN_VALUES values."""
    noise = estimate_noise(values)
    count = len(values) // SEGMENTS
    edges = [round(number * len(values) / SEGMENTS) for number in range(SEGMENTS + 1)]
    segments = [fmean(values[begin:end]) for begin, end in pairwise(edges)]
    first = values[: max(2, len(values) // 50)]
    error, start_error = noise * math.sqrt(2 / count), noise * math.sqrt(1 / count + 1 / len(first))
    return Curve(values, fmean(first), segments, noise, error, start_error)


def estimate_noise(values: Sequence[float]) -> float:
    """Return the standard deviation of the noise, from the median difference of neighbours; jumps hardly change it."""
    # 1.4826 x the median of |x| is the standard deviation of a normal x; a difference has sqrt(2) x that of a value.
    return 1.4826 * median(abs(after - before) for before, after in pairwise(values)) / math.sqrt(2)


def judge_shape(curve: Curve, may_decay: bool) -> Diagnosis:
    """Return the diagnosis of a curve; `may_decay` is True if its rate may have decayed within it."""
    from_to = f"from {curve.start:.4g} to {curve.end:.4g}"
    figures = {"start": curve.start, "end": curve.end, "noise": curve.noise}
    lowest = min(curve.segments)
    if curve.is_change_from_start(curve.end - curve.start):
        return Diagnosis("too high", f"The loss rose {from_to}: the learning rate is too high.", figures)
    if curve.is_change(curve.end - lowest) and curve.end - lowest > RISEN * (curve.start - lowest):
        text = f"The loss fell from {curve.start:.4g} to {lowest:.4g} and rose again to {curve.end:.4g}"
        return Diagnosis("too high", f"{text}: the learning rate is too high for the end of this curve.", figures)
    if curve.is_change_from_start(max(curve.segments) - curve.start) and curve.end > CONVERGED * curve.start:
        text = f"The loss rose from {curve.start:.4g} to {max(curve.segments):.4g} before it fell to {curve.end:.4g}"
        return Diagnosis("too high", f"{text}: the learning rate is too high to begin with.", figures)
    if jumps := count_jumps(curve):
        text = f"The loss jumps: {jumps} of {len(curve.values)} values lie far above their neighbours"
        return Diagnosis("too high", f"{text}. The learning rate is too high, or some batches are bad.", figures)
    if not curve.is_change_from_start(curve.fall) and not curve.is_change(curve.segments[0] - curve.end):
        return judge_flat(curve, from_to, figures)
    return judge_fall(curve, from_to, figures, may_decay)


def judge_flat(curve: Curve, from_to: str, figures: dict[str, float]) -> Diagnosis:
    """Return the diagnosis of a curve whose fall may be noise, or is too small to count."""
    text = f"The values scatter by {curve.noise:.2g}: {from_to} is not certain to be a fall. Log more steps."
    if abs(curve.fall) <= FLAT * abs(curve.start):
        text = (
            f"The loss hardly moved ({from_to}). A rate far too low, one far too high and a mistake elsewhere all look "
            "like this; `viaduct train … --lr find` tries rates of all sizes."
        )
    return Diagnosis("cannot say", text, figures)


def count_jumps(curve: Curve) -> int:
    """Return the number of values far above both neighbours; 0 if few. The first two and the last are not tested."""
    values, jumps = curve.values, 0
    limit = max(JUMP_DEVIATIONS * curve.noise, 0.5 * abs(curve.fall), MIN_CHANGE * abs(curve.start))
    for before, value, after in zip(values[1:], values[2:], values[3:], strict=False):
        jumps += value - max(before, after) > limit
    return jumps if jumps >= max(3, MIN_JUMPS * len(values)) else 0


def judge_fall(curve: Curve, from_to: str, figures: dict[str, float], may_decay: bool) -> Diagnosis:
    """Return the diagnosis of a curve that falls, from its end and the part of the fall in its second half."""
    middle = fmean(curve.segments[4:6])  # the two of the ten segments around the middle
    late = (middle - curve.end) / max(curve.segments[0] - curve.end, 1e-300)  # part of the fall in the second half
    left = curve.end / curve.start if curve.start > 0 else math.nan
    figures = {**figures, "late_share": late, "share_left": left}
    falling = curve.is_change(curve.segments[6] - curve.end)  # in the last three tenths
    if not math.isfinite(left) or left < 0:
        return Diagnosis("cannot say", f"The loss fell {from_to}; how low it can get is not known.", figures)
    if left <= CONVERGED:
        end = " and still falls: more steps would help" if falling and late > EVEN[0] else " and flattens"
        return Diagnosis("good", f"The loss fell {from_to}{end}. The learning rate works.", figures)
    if falling and EVEN[0] <= late <= EVEN[1]:
        text = f"The loss fell evenly {from_to} and still falls, {100 * late:.0f} % of the fall in the second half"
        return Diagnosis("too low", f"{text}: the learning rate is too low for so few steps.", figures)
    if falling:
        pace = "ever more slowly" if late < EVEN[0] else "ever faster"
        return Diagnosis("cannot say", f"The loss fell {from_to} and still falls, but {pace}.", figures)
    if curve.needed_errors * curve.error > HIDDEN_BY_NOISE * curve.fall:
        return Diagnosis("cannot say", f"The loss fell {from_to}; its noise hides whether it still falls.", figures)
    causes = ["a rate too high to get lower", "a network that can learn no more", "a rate that has decayed"]
    listed = "; ".join(causes if may_decay else causes[:2])
    text = f"The loss fell {from_to} and stays there; several causes look like this: {listed}."
    return Diagnosis("cannot say", f"{text} A shorter run with a third of the rate shows which.", figures)
