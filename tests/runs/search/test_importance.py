"""Importance of parameters in a search."""

from __future__ import annotations

import pytest

from runs.search.replay import make_search_loop, make_study
from viaduct.runs.search.importance import measure_importance
from viaduct.runs.search.search_loop import Plan


def test_importance_is_not_reported_of_a_few_trials() -> None:
    study = make_study()
    make_search_loop(study, Plan(5)).run()
    assert measure_importance(study) is None


def test_importance_names_both_parameters_and_adds_up() -> None:
    study = make_study()
    make_search_loop(study, Plan(40, sampler="random")).run()
    shares = measure_importance(study)
    assert shares is not None
    assert set(shares) == {"optimizer.lr", "optimizer.momentum"}
    assert sum(shares.values()) == pytest.approx(1)
