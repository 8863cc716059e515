"""A learning-rate range test, read: nothing is suggested where there is no slope."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from viaduct.runs.rate_range import cut_divergence, render_text, suggest_rate, write_range_page
from viaduct.runs.showing import draw_sparkline

STEPS = 200
RATES = [1e-5 * 1e6 ** (step / (STEPS - 1)) for step in range(STEPS)]


def make_losses(best: float, diverges: float, noise: float, seed: int = 1) -> list[float]:
    """A loss that falls around the rate `best` and explodes at the rate `diverges`."""
    rng = np.random.default_rng(seed)
    falls = [2.3 - 1.2 / (1 + math.exp(-4 * (math.log10(rate) - math.log10(best)))) for rate in RATES]
    explodes = [0.5 * max(0.0, rate / diverges - 1) for rate in RATES]
    return [fall + rise + float(rng.normal(0, noise)) for fall, rise in zip(falls, explodes, strict=True)]


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.3])
def test_noise_has_no_slope(noise: float) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        found = suggest_rate(RATES, [2.3 + float(rng.normal(0, noise)) for _ in RATES])
        assert found.rate is None
        assert "No clear slope" in found.reason


def test_a_loss_that_only_rises_has_no_slope() -> None:
    found = suggest_rate(RATES, [2.3 + 10 * rate for rate in RATES])
    assert found.rate is None
    assert "rises to" in found.reason


def test_nan_after_a_few_steps_is_no_suggestion() -> None:
    found = suggest_rate(RATES, [2.3] * 10 + [math.nan] * 190)
    assert found.rate is None
    assert "after 10 steps" in found.reason


def test_a_few_steps_are_no_suggestion() -> None:
    assert suggest_rate(RATES[:20], [2.3 - 0.1 * step for step in range(20)]).rate is None


@pytest.mark.parametrize("seed", range(5))
def test_the_steepest_fall_is_suggested(seed: int) -> None:
    found = suggest_rate(RATES, make_losses(best=0.01, diverges=1.0, noise=0.03, seed=seed))
    assert found.rate is not None
    assert 0.003 < found.rate < 0.03
    assert "falls steepest" in found.reason


def test_the_suggestion_is_an_order_below_divergence() -> None:
    found = suggest_rate(RATES, make_losses(best=0.3, diverges=0.5, noise=0.01))
    assert found.rate is not None
    assert found.diverging_rate is not None
    assert found.rate == pytest.approx(found.diverging_rate / 10, rel=0.05)
    assert "a tenth of that" in found.reason


def test_a_bump_that_is_regained_is_not_divergence() -> None:
    losses = make_losses(best=0.001, diverges=1e9, noise=0.01)
    losses[150:160] = [2.3] * 10
    assert suggest_rate(RATES, losses).diverging_rate is None


def test_the_curve_is_drawn_in_text_and_as_a_page(tmp_path: Path) -> None:
    losses = make_losses(best=0.01, diverges=1.0, noise=0.03)
    found = suggest_rate(RATES, losses)
    text = render_text(RATES, found)
    assert f"Suggested learning rate: {found.rate:g}." in text
    assert draw_sparkline(cut_divergence(found.smoothed)) in text
    write_range_page(tmp_path / "rates.html", "recipe", RATES, losses, found)
    assert "falls steepest" in (tmp_path / "rates.html").read_text()
