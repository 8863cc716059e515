"""Results of a study: its trials, the best one, and those that may be worse only by noise.

A past run is a finished run from outside the study that counts like a trial (`viaduct search --from`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from viaduct.runs.search.space import Space, Value
from viaduct.runs.seeds import pool_deviation

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

State = Literal["finished", "pruned", "failed", "unfinished", "past run"]
ACCURACIES = ("top1", "top5")
"""Metrics that are a fraction of the validation images; the number of images determines their noise."""
FRACTIONS = (*ACCURACIES, "precision", "recall", "f1")
"""Metrics from 0 to 1 that are shown in percent."""
STANDARD_ERRORS = 1.96  # of a 95 % interval
NUMBER = re.compile(r"0x[0-9a-f]+|[-+]?(?:[0-9]+(?:[,_][0-9]+)*(?:\.[0-9]+)?|\.[0-9]+)(?:e[-+]?[0-9]+)?", re.IGNORECASE)
PAST_RUN = "past_run"  # attribute of a past run among the trials of a study; its value is the run's directory


@dataclass(frozen=True)
class TrialResult:
    """One trial, or one past run."""

    name: str
    number: int | None  # None for a past run
    values: dict[str, Value]
    state: State
    value: float | None  # metric at the last evaluation, also of a trial that did not finish
    images: int | None = None  # number of validation images
    seed: int | None = None  # of the training; None: not recorded
    reason: str = ""
    seconds: float | None = None
    evaluations: int = 0  # number of evaluations that were reported

    @property
    def is_measured(self) -> bool:
        """True if the trial was trained to its end and has a value."""
        return self.value is not None and self.state in ("finished", "past run")


@dataclass(frozen=True)
class Verdict:
    """The best trial, and the trials whose difference from it is within the noise."""

    best: TrialResult
    ties: list[TrialResult]  # empty if the noise is not known
    noise: float | None  # half the width of the 95 % interval of a difference, at the best trial's value; None: unknown
    source: str  # measurements from which the noise was computed, in words
    others: int = 0  # number of other trials that were trained to their end


def read_results(study: Study, space: Space) -> list[TrialResult]:
    """Return the past runs and the trials of a study, in the order in which they were added."""
    results, number = [], 0
    for trial in study.get_trials(deepcopy=False):
        past = trial.user_attrs.get(PAST_RUN)  # its run directory
        if past:
            results.append(read_result(trial, number=None, name=past, space=space))
        else:
            results.append(read_result(trial, number, f"trial-{number:03d}", space))
            number += 1
    return results


def read_result(trial: FrozenTrial, number: int | None, name: str, space: Space) -> TrialResult:
    """Return a trial of Optuna's study, or a past run (`number` None), as a result."""
    from optuna.trial import TrialState

    states: dict[TrialState, State] = {
        TrialState.COMPLETE: "finished",
        TrialState.PRUNED: "pruned",
        TrialState.FAIL: "failed",
    }
    duration, reported = trial.user_attrs.get("seconds"), trial.intermediate_values
    return TrialResult(
        name=name,
        number=number,
        values={path: trial.params[path] for path in space.paths if path in trial.params},
        state="past run" if number is None else states.get(trial.state, "unfinished"),
        value=trial.value if trial.value is not None else reported.get(max(reported, default=0)),
        images=trial.user_attrs.get("images"),
        seed=trial.user_attrs.get("seed"),
        reason=trial.user_attrs.get("reason", ""),
        seconds=duration if isinstance(duration, int | float) else None,
        evaluations=len(reported),
    )


def rank_results(results: Sequence[TrialResult], direction: str) -> list[TrialResult]:
    """Return the trials and past runs that were trained to their end, the best first."""
    sign = 1 if direction == "minimize" else -1
    return sorted((result for result in results if result.is_measured), key=lambda result: sign * (result.value or 0.0))


def judge_results(results: Sequence[TrialResult], metric: str, direction: str) -> Verdict | None:
    """Return the best of the trials and past runs that were trained to their end; None if there are none."""
    ranked = rank_results(results, direction)
    if not ranked:
        return None
    best, *others = ranked
    seed_deviation = measure_seed_deviation(ranked)
    ties = []
    for other in others:
        margin = estimate_difference_noise(best, other, metric, seed_deviation)
        if margin is None or abs((best.value or 0.0) - (other.value or 0.0)) <= margin:
            ties.append(other)
    noise = estimate_difference_noise(best, best, metric, seed_deviation)
    source = describe_noise(best, metric, seed_deviation)
    return Verdict(best, ties if noise is not None else [], noise, source, len(others))


def estimate_difference_noise(
    left: TrialResult, right: TrialResult, metric: str, seed_deviation: float | None
) -> float | None:
    """Return the difference that noise alone exceeds in 5 % of the cases; None if the noise is not known.

    It is the larger of the noise between seeds and the sampling noise of the validation images.
    """
    margins = []
    if seed_deviation is not None:
        margins.append(STANDARD_ERRORS * math.sqrt(2) * seed_deviation)
    if metric in ACCURACIES and left.images and right.images:
        variance = estimate_accuracy_variance(left) + estimate_accuracy_variance(right)
        margins.append(STANDARD_ERRORS * math.sqrt(variance))
    return max(margins) if margins else None


def estimate_accuracy_variance(result: TrialResult) -> float:
    """Return the sampling variance of an accuracy; one right and one wrong image are added, so that it is not 0."""
    count = result.images or 1
    accuracy = ((result.value or 0.0) * count + 1) / (count + 2)
    return accuracy * (1 - accuracy) / count


def measure_seed_deviation(results: Sequence[TrialResult]) -> float | None:
    """Return the standard deviation between results with equal values and different seeds; None if there are none.

    All trials of a study have the same seed; past runs may have others.
    """
    groups: dict[tuple[tuple[str, Value], ...], dict[int, float]] = {}  # values -> seed -> result
    for result in results:
        if result.seed is not None:
            groups.setdefault(tuple(sorted(result.values.items())), {})[result.seed] = result.value or 0.0
    repeated = [list(by_seed.values()) for by_seed in groups.values() if len(by_seed) > 1]
    return pool_deviation(repeated) if repeated else None


def describe_noise(best: TrialResult, metric: str, seed_deviation: float | None) -> str:
    """Describe the measurements from which the noise was computed; empty if it is not known."""
    images = f"{best.images:,} validation images" if metric in ACCURACIES and best.images else ""
    seeds = "runs of equal values with other seeds" if seed_deviation is not None else ""
    return " and ".join(filter(None, (images, seeds)))


def fold_numbers(reason: str) -> str:
    """Replace every number in a reason by #, so that reasons that differ only in numbers are equal."""
    return NUMBER.sub("#", reason)


def format_value(value: float | None, metric: str) -> str:
    """Return a metric as text: fractions in percent, a missing value as a dash."""
    if value is None:
        return "-"
    return f"{100 * value:.2f} %" if metric in FRACTIONS else f"{value:.4g}"


def format_setting(value: Value) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def describe_values(values: dict[str, Value]) -> str:
    return " ".join(f"{path}={format_setting(value)}" for path, value in values.items())


def describe_verdict(verdict: Verdict, metric: str) -> list[str]:
    """Return the sentences about the best trial; a difference within the noise is not called better."""
    best, ties = verdict.best, verdict.ties
    rank = "Lowest loss" if metric == "loss" else f"Highest {metric}"
    value, values = format_value(best.value, metric), describe_values(best.values)
    lines = [f"{rank} of those trained to their end: {value}, {best.name} ({values})."]
    if verdict.noise is None:
        lines.append(f"How much {metric} varies with the seed was not measured: small differences may be noise.")
        return lines
    margin = f"{100 * verdict.noise:.2f} points" if metric in FRACTIONS else f"{verdict.noise:.3g}"
    if ties:
        names = ", ".join(result.name for result in ties[:5]) + (", …" if len(ties) > 5 else "")
        lines.append(
            f"It is not shown to be better than {len(ties)} other{'s' * (len(ties) > 1)} ({names}): "
            f"the differences are within the noise of {verdict.source} (about {margin})."
        )
    elif not verdict.others:
        lines.append(f"No other was trained to its end; the noise of {verdict.source} is {margin}.")
    else:
        lines.append(
            f"All others trained to their end differ by more than the noise of {verdict.source} (about {margin})."
        )
    if "seeds" not in verdict.source:
        lines.append("Noise between seeds was not measured and comes on top: train the best ones with several seeds.")
    return lines
