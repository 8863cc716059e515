"""Steps per second of both sides on this machine's CPU, with the noise of the measurement.

They show what the migration costs a step, not the card's speed, and are not part of the verdict. The time of a step
includes what carry records.
"""

from __future__ import annotations

import csv
import io
import itertools
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from viaduct.carrying.repetition import find_second_run
from viaduct.carrying.running import Run

if TYPE_CHECKING:
    from viaduct.carrying.carry import CarryResult

MIN_INTERVALS = 4  # between steps, for a median
MIN_NOISE = 0.05  # relative; two medians of the same work may differ by this because of other work on the machine


@dataclass(frozen=True)
class Speed:
    """Steps per second of each finished run of both sides: medians over the intervals between the steps of rank 0."""

    original: tuple[float, ...]
    migrated: tuple[float, ...]
    intervals: int  # smallest number of intervals of a run
    processor_ratio: float  # the ratio by processor time, which depends little on other work on the machine

    @property
    def ratio(self) -> float:
        """Return the migrated script's speed divided by the original's."""
        return statistics.mean(self.migrated) / statistics.mean(self.original)

    @property
    def noise(self) -> float:
        """Return the largest of MIN_NOISE, the spread of a side's runs, and the distance between the two ratios."""
        spread = max(max(runs) / min(runs) - 1 for runs in (self.original, self.migrated))
        return max(spread, find_excess(self.ratio / self.processor_ratio), MIN_NOISE)

    @property
    def is_beyond_noise(self) -> bool:
        """Return True if the speeds differ by more than twice the noise."""
        return find_excess(self.ratio) > 2 * self.noise


def find_excess(ratio: float) -> float:
    """Return the distance of a ratio from 1: 0.25 for 1.25 and 0.8."""
    return max(ratio, 1 / ratio) - 1


def measure_speed(result: CarryResult) -> Speed | None:
    """Return the speeds of both sides; None if the migrated script failed or a run has less than MIN_INTERVALS."""
    if result.migrated is None or not result.migrated.is_finished:
        return None
    original_again, migrated_again = (find_second_run(result.repetitions, side) for side in ("original", "migrated"))
    runs = ((result.original, original_again), (result.migrated, migrated_again))
    sides = [[find_intervals(run) for run in pair if run is not None and run.is_finished] for pair in runs]
    if not all(len(intervals) >= MIN_INTERVALS for side in sides for intervals in side):
        return None
    seconds = ([statistics.median(clock for clock, _ in intervals) for intervals in side] for side in sides)
    original, migrated = (tuple(1 / median for median in side) for side in seconds)  # steps per second
    processor_time = [statistics.median(time for intervals in side for _, time in intervals) for side in sides]
    ratio = processor_time[0] / processor_time[1] if all(processor_time) else 1.0  # 0: too short to be measured
    return Speed(original, migrated, min(len(intervals) for side in sides for intervals in side), ratio)


def find_intervals(run: Run) -> list[tuple[float, float]]:
    """Return the seconds between the ends of steps, by the clock and by processor time."""
    pairs = itertools.pairwise(run.observations.first_rank.step_ends)
    intervals = ((after.clock - before.clock, after.processor - before.processor) for before, after in pairs)
    return [(clock, processor) for clock, processor in intervals if clock > 0]


def describe_speed(result: CarryResult) -> tuple[str, str] | None:
    """Return the remark on speed; None if it was not measured."""
    speed = result.speed
    if speed is None:
        return None
    original, migrated = (" and ".join(map(format_rate, runs)) for runs in (speed.original, speed.migrated))
    noise = f"{speed.noise:.0%}"
    if result.request.lang == "zh":
        judged = f"超出波动({noise})的两倍" if speed.is_beyond_noise else f"未超出波动({noise})的两倍"
        text = f"原脚本每秒 {original} 步,迁移后 {migrated} 步,比值 {speed.ratio:.2f},{judged};这是 CPU 的速度。"
        return "速度", text
    judged = f"{'beyond' if speed.is_beyond_noise else 'within'} twice the noise of {noise}"
    compared = f"{original} steps/s before, {migrated} after: a ratio of {speed.ratio:.2f}, {judged}"
    return "Speed", f"{compared}. It is the CPU's speed."


def format_rate(rate: float) -> str:
    return f"{rate:.3g}" if rate < 1000 else f"{rate:.0f}"


# ---- the baseline: a table in which the user enters the figures of the real devices


def list_figures(result: CarryResult) -> list[list[str]]:
    """Return the rows of the baseline: figure, unit, original and migrated on the CPU."""
    runs = (result.original, result.migrated)
    speed, last = result.speed, result.original.summary.steps - 1
    rates = [f"{sum(side) / len(side):.4g}" for side in (speed.original, speed.migrated)] if speed else ["", ""]
    memory = [f"{run.summary.peak_bytes / 2**20:.0f}" if run is not None else "" for run in runs]
    return [
        ["device", "", "CPU", "CPU"],
        ["ranks", "", *[str(result.request.ranks)] * 2],
        ["loss of the first step", "", *(find_loss(run, 0) for run in runs)],
        [f"loss of step {last}", "", *(find_loss(run, last) for run in runs)],
        ["accuracy at the end (top-1)", "%", "", ""],
        ["accuracy at the end (top-5)", "%", "", ""],
        ["speed", "steps/s", *rates],
        ["speed", "samples/s", "", ""],
        ["time of the whole training", "h", "", ""],
        ["memory at most (of the host here)", "MiB", *memory],
    ]


def find_loss(run: Run | None, step: int) -> str:
    losses = run.observations.first_rank.losses if run is not None else []
    return f"{losses[step][0]:.6g}" if step < len(losses) and losses[step] else ""


def name_columns(result: CarryResult) -> list[str]:
    """Return the names of the columns; the user fills in the last two."""
    card = result.request.to.upper()
    return ["figure", "unit", "original here", "migrated here", "original on its own device", f"migrated on the {card}"]


def format_baseline(result: CarryResult) -> str:
    """Return the baseline as CSV, with empty cells for the figures of the real devices."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(name_columns(result))
    writer.writerows([*row, "", ""] for row in list_figures(result))
    return text.getvalue()
