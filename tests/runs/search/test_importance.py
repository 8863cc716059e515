"""Importance of parameters in a search."""

from __future__ import annotations

import pytest

from runs.search.replay import make_conductor, make_study
from viaduct.runs.search.conductor import Plan
from viaduct.runs.search.importance import measure_importance


def test_importance_is_not_said_of_a_few_trials() -> None:
    study = make_study()
    make_conductor(study, Plan(5)).conduct()
    assert measure_importance(study) is None


def test_importance_names_both_parameters_and_adds_up() -> None:
    study = make_study()
    make_conductor(study, Plan(40, sampler="random")).conduct()
    shares = measure_importance(study)
    assert shares is not None
    assert set(shares) == {"optimizer.lr", "optimizer.momentum"}
    assert sum(shares.values()) == pytest.approx(1)
