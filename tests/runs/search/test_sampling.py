"""Samplers and pruners: seeds, and how often a trial is evaluated."""

from __future__ import annotations

import optuna
import pytest

from viaduct.runs.search.sampling import count_evaluations, derive_seed, make_pruner, make_sampler


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


@pytest.mark.parametrize("evaluations", [3, 6, 7])
def test_median_stops_no_trial_before_a_third_of_its_evaluations(evaluations: int) -> None:
    study = optuna.create_study(direction="maximize", pruner=make_pruner("median", evaluations))
    for _ in range(5):
        good = study.ask()
        for index in range(1, evaluations + 1):
            good.report(0.9, index)
        study.tell(good, 0.9)
    bad, stopped = study.ask(), []
    for index in range(1, evaluations + 1):
        bad.report(0.1, index)
        if bad.should_prune():
            stopped.append(index)
    assert stopped[0] == -(-evaluations // 3)


def test_every_trial_has_a_seed_of_its_own() -> None:
    assert len({derive_seed(seed, number) for seed in range(10) for number in range(100)}) == 1000
    assert isinstance(make_sampler("tpe", 1, 0, 20), optuna.samplers.TPESampler)
    assert isinstance(make_sampler("random", 1, 0, 20), optuna.samplers.RandomSampler)
