"""The range test: rates rise, the test ends at divergence, and no run is touched."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest

from training.tiny_runs import RECIPE
from viaduct.recipes import AdamW, LoadedRecipe
from viaduct.training.rate_finder import choose_range, compute_rate, has_diverged, measure_rates
from viaduct.training.request import TrainingRequest
from viaduct.training.rundir import RunDir


def request_for(run: Path, **changes: object) -> TrainingRequest:
    recipe = dataclasses.replace(RECIPE, **changes)  # type: ignore[arg-type]
    return TrainingRequest(LoadedRecipe("tiny", recipe, "", None), RunDir(run), None, "cpu", "auto", "")


def test_the_run_directory_is_left_as_it_is(tmp_path: Path) -> None:
    measure_rates(request_for(tmp_path / "run"), steps=5)
    assert not (tmp_path / "run").exists()


def test_rates_rise_evenly_on_a_log_scale_and_losses_are_those_of_the_steps(tmp_path: Path) -> None:
    measured = measure_rates(request_for(tmp_path / "run"), steps=9)
    assert measured.rates == pytest.approx([compute_rate(step, 9, 1e-5, 10.0) for step in range(9)])
    assert measured.rates[-1] == pytest.approx(10.0)
    assert len(measured.losses) == 9
    assert math.isfinite(measured.losses[0])
    assert measured.losses[0] == pytest.approx(math.log(4), rel=0.5)


def test_the_weights_are_trained_with_the_rates(tmp_path: Path) -> None:
    slow = measure_rates(request_for(tmp_path / "run"), steps=40)
    assert min(slow.losses[20:]) < 0.8 * slow.losses[0]


def test_the_test_ends_where_the_loss_diverges() -> None:
    assert not has_diverged([2.3, 2.2, 2.1, 6.0])
    assert has_diverged([2.3, 2.2, 2.1, math.nan])
    assert has_diverged([2.3, *[50.0] * 10])


def test_adaptive_optimizers_have_a_range_of_their_own() -> None:
    assert choose_range(dataclasses.replace(RECIPE, optimizer=AdamW())) == (1e-7, 1.0)
