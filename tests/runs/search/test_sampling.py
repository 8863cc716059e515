"""Samplers and pruners: seeds, and how often a trial is evaluated."""

from __future__ import annotations

import optuna
import pytest

from viaduct.runs.search.sampling import count_evaluations, make_pruner, make_sampler, seed_of


@pytest.mark.parametrize(
    ("epochs", "every", "count"),
    [(6, 1, 6), (6, 0, 1), (1, 10, 1), (10, 3, 4), (1.0, 1 / 6, 6), (0.5, 0.2, 3), (182, 10, 19)],
)
def test_evaluations_are_counted_with_the_last(epochs: float, every: float, count: int) -> None:
    assert count_evaluations(epochs, every) == count


def test_trials_with_one_evaluation_cannot_be_stopped_early() -> None:
    assert isinstance(make_pruner("hyperband", 1), optuna.pruners.NopPruner)
    assert isinstance(make_pruner("none", 9), optuna.pruners.NopPruner)
    assert isinstance(make_pruner("hyperband", 6), optuna.pruners.HyperbandPruner)
    assert isinstance(make_pruner("median", 6), optuna.pruners.MedianPruner)


def test_every_trial_has_a_seed_of_its_own() -> None:
    assert len({seed_of(seed, number) for seed in range(10) for number in range(100)}) == 1000
    assert isinstance(make_sampler("tpe", 1, 0, 20), optuna.samplers.TPESampler)
    assert isinstance(make_sampler("random", 1, 0, 20), optuna.samplers.RandomSampler)
