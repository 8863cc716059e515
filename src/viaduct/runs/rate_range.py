"""Evaluation of a learning-rate range test: a suggested rate, or the reason why there is none.

The test trains with rates from very low to very high, one step each, and plots the loss over the logarithm of the rate.
The suggested rate is where the smoothed loss falls steepest, but at most a tenth of the rate at which it diverges. No
rate is suggested unless the loss falls by more than its noise and MIN_FALL.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from viaduct.runs.curve_diagnosis import estimate_noise
from viaduct.runs.showing import draw_sparkline

MIN_STEPS = 30  # number of steps below which no rate is suggested
STANDARD_ERRORS = 5.0  # standard errors that the fall must exceed
MIN_FALL = 0.02  # fraction of the first loss by which the loss must fall
RISEN = 0.5  # a loss diverges if it rises again by more than this fraction of its fall
DIVERGENCE_DISTANCE = 10.0  # factor between the suggested rate and the rate at which the loss diverges
ROWS = 12  # rows of the table of rates on the terminal


@dataclass(frozen=True)
class Suggestion:
    """Result of a range test."""

    rate: float | None  # None: no rate is suggested
    reason: str
    smoothed: list[float]  # losses before the first NaN or infinity; fewer than MIN_STEPS are not smoothed
    steepest: float | None = None  # rate at which the loss falls steepest
    lowest: float | None = None  # rate at which the loss is lowest
    diverging_rate: float | None = None  # rate at which the loss diverges


def suggest_rate(rates: Sequence[float], losses: Sequence[float]) -> Suggestion:
    """Return the rate that a range test suggests, with the reason."""
    count = next((index for index, loss in enumerate(losses) if not math.isfinite(loss)), len(losses))
    diverging_rate = rates[count] if count < len(losses) else None
    rates, losses = list(rates[:count]), list(losses[:count])
    if count < MIN_STEPS:
        text = f"The test has {count} steps"
        if diverging_rate:
            text = f"The loss became NaN or infinite after {count} steps, at a rate of {diverging_rate:.2g}"
        return Suggestion(None, f"{text}: too few to see a slope.", losses, diverging_rate=diverging_rate)
    smoothed = smooth(losses)
    start_loss = fmean(smoothed[: max(3, len(smoothed) // 10)])
    lowest_step = min(range(len(smoothed)), key=smoothed.__getitem__)
    fall = start_loss - smoothed[lowest_step]
    # Standard error of a smoothed value, from the noise in the first half of the test, where the rates are low.
    error = estimate_noise(losses[: max(10, count // 2)]) / math.sqrt(2 * choose_radius(count) + 1)
    if fall <= max(STANDARD_ERRORS * error, MIN_FALL * abs(start_loss)):
        return describe_no_slope(smoothed, start_loss, rates, diverging_rate)
    diverging_rate = find_divergence(smoothed, lowest_step, fall, rates) or diverging_rate
    steepest = rates[find_steepest(smoothed, lowest_step)]
    return suggest_from_slope(steepest, rates[lowest_step], diverging_rate, smoothed, start_loss, smoothed[lowest_step])


def choose_radius(count: int) -> int:
    """Return how many steps on each side of a step `smooth` averages: a fortieth of the curve, at least 2."""
    return max(2, count // 40)


def smooth(losses: Sequence[float]) -> list[float]:
    """Return for each step the mean loss of the steps around it."""
    radius = choose_radius(len(losses))
    return [fmean(losses[max(0, index - radius) : index + radius + 1]) for index in range(len(losses))]


def find_divergence(smoothed: list[float], lowest_step: int, fall: float, rates: list[float]) -> float | None:
    """Return the rate from which on more than RISEN of the fall is lost again; None if there is none."""
    limit = smoothed[lowest_step] + RISEN * fall
    last_low = max(index for index in range(lowest_step, len(smoothed)) if smoothed[index] <= limit)
    return rates[last_low + 1] if last_low + 1 < len(smoothed) else None


def find_steepest(smoothed: list[float], lowest_step: int) -> int:
    """Return the step at which the loss falls fastest on its way to its minimum at `lowest_step`.

    Slopes are differences per step, because the logarithms of the rates are evenly spaced.
    """
    radius = max(2, len(smoothed) // 20)

    def measure_slope(index: int) -> float:
        before, after = max(0, index - radius), min(len(smoothed) - 1, index + radius)
        return (smoothed[before] - smoothed[after]) / (after - before)

    first = min(radius, lowest_step)
    last = max(first, lowest_step - radius)
    return max(range(first, last + 1), key=measure_slope)


def suggest_from_slope(
    steepest_rate: float,
    lowest_rate: float,
    diverging_rate: float | None,
    smoothed: list[float],
    start_loss: float,
    lowest_loss: float,
) -> Suggestion:
    """Return the suggestion for a loss that clearly falls."""
    limit = diverging_rate / DIVERGENCE_DISTANCE if diverging_rate is not None else math.inf
    rate = float(f"{min(steepest_rate, limit):.2g}")
    fall = f"from {start_loss:.4g} to {lowest_loss:.4g}, lowest at {lowest_rate:.2g}"
    text = f"The loss falls steepest at a rate of {steepest_rate:.2g} ({fall})"
    if diverging_rate is None:
        text += " and does not diverge within the test"
    elif limit < steepest_rate:
        text += f" and diverges at {diverging_rate:.2g}: the suggested rate is a tenth of that"
    else:
        text += f" and diverges at {diverging_rate:.2g}"
    return Suggestion(rate, f"{text}.", smoothed, steepest_rate, lowest_rate, diverging_rate)


def describe_no_slope(
    smoothed: list[float], start_loss: float, rates: list[float], diverging_rate: float | None
) -> Suggestion:
    """Return the result without a rate for a loss that does not fall clearly."""
    end = f", and diverges at {diverging_rate:.2g}" if diverging_rate is not None else f" up to {rates[-1]:.2g}"
    if diverging_rate is None and smoothed[-1] > start_loss * 1.1:
        end = f", and rises to {smoothed[-1]:.4g} at {rates[-1]:.2g}"
    text = (
        f"No clear slope: from {start_loss:.4g} the loss falls by less than {100 * MIN_FALL:.0f} %, or its noise hides "
        f"the fall{end}."
    )
    hint = "More steps (--steps 500) or larger batches lower the noise; or the network does not learn from these data."
    return Suggestion(None, f"{text} {hint}", smoothed, diverging_rate=diverging_rate)


def cut_divergence(smoothed: list[float]) -> list[float]:
    """Limit the values to a little above the first one, so that the sparkline still shows the others."""
    fall = smoothed[0] - min(smoothed)
    return [min(value, smoothed[0] + fall / 4) for value in smoothed] if fall > 0 else smoothed


def render_text(rates: Sequence[float], suggestion: Suggestion) -> str:
    """Return the curve as a table of ROWS rates and as a sparkline, and the suggestion."""
    smoothed = suggestion.smoothed
    count = min(ROWS, len(smoothed))
    steps = [round(row * (len(smoothed) - 1) / max(1, count - 1)) for row in range(count)]
    lines = [f"{'rate':>10}  {'loss':>8}", *(f"{rates[step]:>10.3g}  {smoothed[step]:>8.4g}" for step in steps)]
    if smoothed:
        sparkline = draw_sparkline(cut_divergence(smoothed))
        lines.append(f"{rates[0]:.2g} {sparkline} {rates[len(smoothed) - 1]:.2g}")
    return "\n".join([*lines, "", f"{format_headline(suggestion)}.", suggestion.reason])


def format_headline(suggestion: Suggestion) -> str:
    return "No rate is suggested" if suggestion.rate is None else f"Suggested learning rate: {suggestion.rate:g}"


def write_range_page(
    path: Path, name: str, rates: Sequence[float], losses: Sequence[float], suggestion: Suggestion
) -> None:
    """Write the page of a range test."""
    from viaduct.reporting import Callout, LineChart, Page, Remark, Section, Series, Tile, Tone, write_page

    logs = [math.log10(rate) for rate in rates]
    count = len(suggestion.smoothed)
    series = [Series("smoothed", logs[:count], suggestion.smoothed), Series("each step", logs, list(losses))]
    marks = {"suggested": suggestion.rate, "steepest": suggestion.steepest, "diverges": suggestion.diverging_rate}
    tone: Tone = "good" if suggestion.rate is not None else "warn"
    page = Page(
        name,
        f"{len(losses)} steps with rates from {rates[0]:.2g} to {rates[-1]:.2g}",
        [Tile(label, "-" if value is None else f"{value:.2g}") for label, value in marks.items()],
        [Section("Loss against rate", parts=[LineChart("Loss", "log10 of the learning rate", "loss", series)])],
        [Callout(tone, format_headline(suggestion), [Remark("Why", suggestion.reason)])],
        kind="learning-rate range test",
    )
    write_page(page, path)
