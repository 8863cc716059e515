"""Planted problems and healthy runs through the real command; minutes, so not in the usual suite."""

import subprocess  # noqa: F401  # its presence tells conftest.py that processes are started here
from pathlib import Path

import pytest

from profiling.problem_cases import HEALTHY, PLANTED, Case, profile_case


@pytest.mark.slow
@pytest.mark.parametrize("case", HEALTHY, ids=lambda case: case.name)
def test_a_healthy_run_gets_no_advice(case: Case, tmp_path: Path) -> None:
    if case.obstacle:
        pytest.skip(case.obstacle)
    profile = profile_case(case, tmp_path / "prof")
    assert [advice.title for advice in profile.advice] == []


@pytest.mark.slow
@pytest.mark.parametrize("case", PLANTED, ids=lambda case: case.name)
def test_the_first_advice_names_the_planted_problem(case: Case, tmp_path: Path) -> None:
    if case.obstacle:
        pytest.skip(case.obstacle)
    profile = profile_case(case, tmp_path / "prof")
    assert [advice.name for advice in profile.advice][:1] == [case.expected], profile.advice
