"""Diagnosis of the learning rate from a loss curve: too low, good, too high, or cannot say.

    diagnose(losses).text     The loss fell evenly from 2.31 to 2.05 and still falls, 45 % of it in the second half: …

After the curves that textbooks draw for different rates: far too high, the loss rises or jumps; too low, it falls
evenly and is still high at the end; good, it has fallen well below its start. A curve that fell a little and stays
there is drawn for a rate that is somewhat too high, but a network that can learn no more has the same curve: the
diagnosis is "cannot say". Differences count only where they are larger than the curve's own noise.

A loss that flattens because its rate decays to nothing says little, too. Where the rates of the steps are given, only
the stretch from the end of the warm-up until the rate falls below half of its peak is read. If that stretch says
nothing, the whole curve can still show that the rate is good.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, median
from typing import Literal

Kind = Literal["too low", "good", "too high", "cannot say"]

MIN_VALUES = 20
"""Values below which no diagnosis is made."""
SEGMENTS = 10
STANDARD_ERRORS = 5.0
"""Standard errors that a difference must exceed; see `Curve.certain`."""
LEAST_CHANGE = 0.02
"""Share of the first loss below which a change is ignored, however certain it is."""
CONVERGED = 0.7
"""Share of the first loss up to which the last loss counts as a good result."""
EVEN = (0.38, 0.6)
"""Share of an even fall in its second half; 0.5 is a straight line, 0.38 an exponential of one time constant."""
VISIBLE = 0.15
"""Share of a fall that the noise may hide at most, for the end of a curve to be called flat."""
RISEN = 0.3
"""Share of the fall that must be lost again for the end to count as a rise."""
SPIKE_DEVIATIONS = 8.0
"""Standard deviations of the noise that a value lies above both neighbours, to be a jump."""
SPIKES_SHARE = 0.03
"""Share of the values that must be jumps."""
PEAK = 0.9
"""Share of the highest rate from which on the warm-up is over."""
FLAT = 0.1
"""Share of the first loss up to which a change is called hardly any movement."""
DECAYED = 0.5
"""Share of the highest rate below which the schedule has decayed."""


@dataclass(frozen=True)
class Diagnosis:
    """What a loss curve says about the learning rate, with its evidence."""

    kind: Kind
    text: str
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Curve:
    """A loss curve in a few figures."""

    values: list[float]
    start: float
    """Mean of the first values."""
    segments: list[float]
    """Means of ten equal parts."""
    noise: float
    """Standard deviation around the trend."""
    error: float
    """Standard error of a difference between two segments' means."""
    start_error: float
    """Standard error of a difference between the mean of the first values and a segment's mean."""

    @property
    def certain(self) -> float:
        """Standard errors that a difference must have: more for short curves, whose noise is hardly known."""
        return STANDARD_ERRORS * (1 + 10 / len(self.values))

    @property
    def end(self) -> float:
        """Mean loss of the last tenth."""
        return self.segments[-1]

    @property
    def fall(self) -> float:
        """Start minus end: how far the loss fell."""
        return self.start - self.end

    def is_change(self, difference: float) -> bool:
        """Return True for a difference between two segments above both the noise and LEAST_CHANGE."""
        return difference > max(self.certain * self.error, LEAST_CHANGE * abs(self.start))

    def is_change_from_start(self, difference: float) -> bool:
        """Return True for a difference from the first values above both the noise and LEAST_CHANGE."""
        return difference > max(self.certain * self.start_error, LEAST_CHANGE * abs(self.start))


def diagnose(losses: Sequence[float | None], rates: Sequence[float | None] | None = None) -> Diagnosis:
    """Return what a loss curve says about the learning rate; `rates` are the rates of the same steps, where known.

    None in a sequence is a value that was not logged.
    """
    finite = [loss for loss in losses if loss is not None and math.isfinite(loss)]
    if ends_in_nan(losses):
        seen = f" It was {finite[-1]:.4g} before." if finite else ""
        return Diagnosis(
            "too high",
            f"The loss is NaN or infinite at the end.{seen} The learning rate is too high, or numbers overflow.",
        )
    values, obstacle = find_stretch(losses, rates)
    if obstacle:
        return Diagnosis("cannot say", obstacle)
    if len(values) < MIN_VALUES:
        which = " with a high rate" if rates is not None else ""
        text = f"The curve has {len(values)} values{which}; {MIN_VALUES} are needed to see its shape."
        return Diagnosis("cannot say", text)
    found = read_shape(measure(values), may_decay=rates is None)
    if found.kind == "cannot say" and rates is not None and len(finite) > len(values):
        entire = read_shape(measure(finite), may_decay=True)
        return entire if entire.kind == "good" else found
    return found


def ends_in_nan(losses: Sequence[float | None]) -> bool:
    """Return True if neither of the last two logged values is finite; a single one may be a skipped step."""
    logged = [loss for loss in losses if loss is not None]
    return bool(logged) and not any(math.isfinite(loss) for loss in logged[-2:])


def find_stretch(losses: Sequence[float | None], rates: Sequence[float | None] | None) -> tuple[list[float], str]:
    """Return the finite losses after the warm-up and before the rate has decayed; or why the curve says nothing.

    The warm-up ends at the first rate of at least PEAK of the highest; the rate has decayed below DECAYED of it.
    """
    if rates is None:
        return [loss for loss in losses if loss is not None and math.isfinite(loss)], ""
    known = [rate if rate is not None and math.isfinite(rate) else 0.0 for rate in rates]
    if len(known) != len(losses):
        return [], f"There are {len(losses)} losses and {len(known)} rates."
    peak = max(known, default=0.0)
    if not peak > 0:
        return [], "The learning rate is 0 throughout."
    begin = next(index for index, rate in enumerate(known) if rate >= PEAK * peak)
    if begin > 0.8 * len(known):  # the last fifth
        return (
            [],
            "The learning rate rises until the last fifth of the curve: too little of it comes after the warm-up.",
        )
    decayed = (index for index in range(begin, len(known)) if known[index] < DECAYED * peak)
    end = next(decayed, len(known))
    return [loss for loss in losses[begin:end] if loss is not None and math.isfinite(loss)], ""


def measure(values: list[float]) -> Curve:
    """Return the figures of a curve; its noise is estimated from differences of neighbours, robust against jumps."""
    steps = [abs(after - before) for before, after in pairwise(values)]
    # The median of |differences| as a standard deviation of normal noise; a difference has the noise of two values.
    noise = 1.4826 * median(steps) / math.sqrt(2)
    count = len(values) // SEGMENTS
    segments = [fmean(part) for part in split(values, SEGMENTS)]
    first = values[: max(2, len(values) // 50)]
    error, start_error = noise * math.sqrt(2 / count), noise * math.sqrt(1 / count + 1 / len(first))
    return Curve(values, fmean(first), segments, noise, error, start_error)


def split(values: list[float], parts: int) -> list[list[float]]:
    edges = [round(number * len(values) / parts) for number in range(parts + 1)]
    return [values[begin:end] for begin, end in pairwise(edges)]


def read_shape(curve: Curve, may_decay: bool) -> Diagnosis:
    """Return the diagnosis of a curve with enough values; `may_decay`: its rate may have decayed within the curve."""
    levels = f"from {curve.start:.4g} to {curve.end:.4g}"
    figures = {"start": curve.start, "end": curve.end, "noise": curve.noise}
    lowest = min(curve.segments)
    if curve.is_change_from_start(curve.end - curve.start):
        return Diagnosis("too high", f"The loss rose {levels}: the learning rate is too high.", figures)
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
        return describe_stillness(curve, levels, figures)
    return read_fall(curve, levels, figures, may_decay)


def describe_stillness(curve: Curve, levels: str, figures: dict[str, float]) -> Diagnosis:
    """Return the diagnosis of a curve whose fall may be noise, or is too small to count."""
    if abs(curve.fall) > FLAT * abs(curve.start):
        text = f"The values scatter by {curve.noise:.2g}: {levels} is not certain to be a fall. Log more steps."
        return Diagnosis("cannot say", text, figures)
    text = f"The loss hardly moved ({levels}). A rate far too low, one far too high and a mistake elsewhere"
    return Diagnosis(
        "cannot say", f"{text} all look like this; `viaduct train … --lr find` tries rates of all sizes.", figures
    )


def count_jumps(curve: Curve) -> int:
    """Return how many values lie far above both neighbours, by at least half the fall; 0 where they are few."""
    values, jumps = curve.values, 0
    limit = max(SPIKE_DEVIATIONS * curve.noise, 0.5 * abs(curve.fall), LEAST_CHANGE * abs(curve.start))
    for before, value, after in zip(values[1:], values[2:], values[3:], strict=False):
        jumps += value - max(before, after) > limit
    return jumps if jumps >= max(3, SPIKES_SHARE * len(values)) else 0


def read_fall(curve: Curve, levels: str, figures: dict[str, float], may_decay: bool) -> Diagnosis:
    """Return the diagnosis of a curve that falls: by how low it came, and by which half of the steps it fell in."""
    half = fmean(curve.segments[4:6])
    late = (half - curve.end) / max(curve.segments[0] - curve.end, 1e-300)
    share = curve.end / curve.start if curve.start > 0 else math.nan
    figures = {**figures, "late_share": late, "share_left": share}
    falling = curve.is_change(curve.segments[6] - curve.end)
    if not math.isfinite(share) or share < 0:
        return Diagnosis("cannot say", f"The loss fell {levels}; how low it can get is not known.", figures)
    if share <= CONVERGED:
        still = " and still falls: more steps would help" if falling and late > EVEN[0] else " and flattens"
        return Diagnosis("good", f"The loss fell {levels}{still}. The learning rate is good.", figures)
    if falling and EVEN[0] <= late <= EVEN[1]:
        text = f"The loss fell evenly {levels} and still falls, {100 * late:.0f} % of it in the second half"
        return Diagnosis("too low", f"{text}: the learning rate is too low for so few steps.", figures)
    if falling:
        pace = "ever more slowly" if late < EVEN[0] else "ever faster"
        return Diagnosis("cannot say", f"The loss fell {levels} and still falls, but {pace}.", figures)
    if curve.certain * curve.error > VISIBLE * curve.fall:
        return Diagnosis("cannot say", f"The loss fell {levels}; its noise hides whether it still falls.", figures)
    causes = ["a rate too high to get lower", "a network that can learn no more", "a rate that has decayed"]
    listed = "; ".join(causes if may_decay else causes[:2])
    text = f"The loss fell {levels} and stays there; several causes look like this: {listed}."
    return Diagnosis("cannot say", f"{text} A shorter run with a third of the rate tells.", figures)
