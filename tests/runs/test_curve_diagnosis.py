"""The learning rate from a loss curve: what must not be said comes first."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from viaduct.runs.curve_diagnosis import diagnose

SEEDS = range(50)


def make_curve(level: Callable[[float], float], count: int, noise: float, seed: int) -> list[float]:
    rng = np.random.default_rng(seed)
    return [level(step / count) + float(rng.normal(0, noise)) for step in range(count)]


def kinds_of(level: Callable[[float], float], count: int = 300, noise: float = 0.05) -> set[str]:
    return {diagnose(make_curve(level, count, noise, seed)).kind for seed in SEEDS}


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.1, 0.5])
@pytest.mark.parametrize("count", [20, 60, 1000])
def test_noise_without_a_trend_is_no_finding(noise: float, count: int) -> None:
    assert kinds_of(lambda time: 2.3, count, noise) == {"cannot say"}


@pytest.mark.parametrize("losses", [[], [2.3], [2.3, 1.0, 0.5], [2.3] * 19, [None] * 50])
def test_a_few_values_have_no_shape(losses: list[float | None]) -> None:
    found = diagnose(losses)
    assert found.kind == "cannot say"
    assert "20 are needed" in found.text


def test_a_constant_loss_is_no_finding() -> None:
    assert diagnose([0.7] * 200).kind == "cannot say"
    assert diagnose([0.0] * 200).kind == "cannot say"


def test_an_overflow_that_recovers_is_not_called_divergence() -> None:
    losses = make_curve(lambda time: 0.1 + 2.2 * math.exp(-8 * time), 200, 0.02, 1)
    losses[3], losses[17] = math.inf, math.nan
    assert diagnose(losses).kind == "good"


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.1])
def test_a_curve_that_falls_fast_and_flattens_low_is_good(noise: float) -> None:
    assert kinds_of(lambda time: 0.1 + 2.2 * math.exp(-8 * time), noise=noise) == {"good"}


def test_a_plateau_that_more_than_one_cause_explains_is_left_open() -> None:
    assert kinds_of(lambda time: 1.9 + 0.4 * math.exp(-20 * time)) == {"cannot say"}


def test_slow_warm_up_is_not_called_a_low_rate() -> None:
    rates = [min(1.0, step / 150) for step in range(300)]
    slow, fast = (lambda time: 2.3 - 0.1 * time), (lambda time: 0.1 + 2.15 * math.exp(-20 * (time - 0.5)))
    losses = make_curve(lambda time: slow(time) if time < 0.5 else fast(time), 300, 0.02, 1)
    assert diagnose(losses, rates).kind == "good"


def test_a_warm_up_that_is_not_over_gives_no_diagnosis() -> None:
    losses = make_curve(lambda time: 2.3 - 0.3 * time, 100, 0.02, 1)
    found = diagnose(losses, [step / 1000 for step in range(100)])
    assert found.kind == "cannot say"
    assert "warm-up" in found.text


def test_a_rate_that_starts_far_too_high_and_decays_is_not_called_too_low() -> None:
    level = lambda time: 2.5 + 3 * math.exp(-(((time - 0.15) / 0.1) ** 2)) - 0.6 * max(0.0, time - 0.3)  # noqa: E731
    assert kinds_of(level) == {"too high"}


def test_a_loss_that_flattens_because_its_rate_decays_is_read_before_it_does() -> None:
    rates = [0.5 * (1 + math.cos(math.pi * step / 300)) for step in range(300)]
    losses = make_curve(lambda time: 2.3 - 0.6 * min(time, 0.5), 300, 0.02, 1)
    assert diagnose(losses, rates).kind == "too low"
    assert diagnose(losses).kind == "cannot say"


def test_noise_that_hides_the_end_is_not_called_a_plateau() -> None:
    losses = make_curve(lambda time: 2.3 - 0.5 * time, 40, 0.1, 1)
    assert "stays there" not in diagnose(losses).text


def test_a_schedule_that_converges_while_it_decays_is_good() -> None:
    rates = [0.5 * (1 + math.cos(math.pi * step / 300)) for step in range(300)]
    losses = make_curve(
        lambda time: 2.3 - 0.5 * time if time < 0.5 else 0.3 + 1.75 * math.exp(-9 * (time - 0.5)), 300, 0.2, 1
    )
    assert diagnose(losses, rates).kind == "good"


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.05])
def test_an_even_fall_that_has_not_come_far_is_too_low(noise: float) -> None:
    assert kinds_of(lambda time: 2.3 - 0.4 * time, noise=noise) == {"too low"}


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.2])
def test_a_loss_that_rises_is_too_high(noise: float) -> None:
    assert kinds_of(lambda time: 2.3 + 4 * time**2, noise=noise) == {"too high"}


def test_a_loss_that_falls_and_rises_again_is_too_high() -> None:
    assert kinds_of(lambda time: 2.3 - 4 * time + 5 * time**2) == {"too high"}


def test_a_loss_that_jumps_is_too_high() -> None:
    losses = make_curve(lambda time: 1.5 + 0.8 * math.exp(-8 * time), 300, 0.02, 1)
    for step in range(40, 300, 20):
        losses[step] += 5
    found = diagnose(losses)
    assert found.kind == "too high"
    assert "13 of 300" in found.text


@pytest.mark.parametrize("ending", [math.nan, math.inf])
def test_a_loss_that_ends_in_nan_is_too_high(ending: float) -> None:
    found = diagnose([2.3, 2.2, 4.0, ending, ending])
    assert found.kind == "too high"
    assert "4 before" in found.text


def test_the_figures_are_in_the_text() -> None:
    found = diagnose([2.3 - 0.4 * step / 300 for step in range(300)])
    assert "from 2.297 to 1.921" in found.text
    assert found.figures["start"] == pytest.approx(2.297, abs=1e-3)


def test_losses_and_rates_of_different_lengths_are_refused_with_a_message() -> None:
    assert "300 losses and 2 rates" in diagnose([1.0] * 300, [0.1, 0.1]).text
