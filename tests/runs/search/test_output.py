"""Output at the end of a search."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runs.search.recorded_outcome import make_outcome
from runs.search.replay import make_search_loop, make_study
from viaduct.runs.search.output import describe_end, measure_importance, print_outcome
from viaduct.runs.search.results import State
from viaduct.runs.search.search_loop import Plan


def test_the_terminal_shows_the_table_the_noise_and_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_outcome(make_outcome(tmp_path, 30, 12))
    output = capsys.readouterr().out
    assert "Importance (PED-ANOVA): " in output
    assert "Highest top1 of those trained to their end: " in output
    assert "viaduct train best.py" in output
    assert "pruned" in output
    assert (tmp_path / "report.html").is_file()


def test_a_search_without_a_best_trial_prints_how_many_were_stopped(tmp_path: Path) -> None:
    outcome = make_outcome(tmp_path, 6, past=2)
    states: list[State] = ["pruned", "failed", "pruned"]
    trials = [replace(outcome.results[-1], number=number, state=state) for number, state in enumerate(states)]
    assert "2 of 3 were stopped early" in describe_end(replace(outcome, results=[*outcome.results[:2], *trials]))


def test_importance_is_not_reported_of_a_few_trials() -> None:
    study = make_study()
    make_search_loop(study, Plan(5)).run()
    assert measure_importance(study) is None


def test_importance_names_both_parameters_and_adds_up() -> None:
    study = make_study()
    make_search_loop(study, Plan(40, sampler="random")).run()
    importance = measure_importance(study)
    assert importance is not None
    assert set(importance) == {"optimizer.lr", "optimizer.momentum"}
    assert sum(importance.values()) == pytest.approx(1)
