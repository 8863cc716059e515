"""The search loop on recorded trials: what is started, stopped, counted, resumed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from statistics import median

import optuna
import pytest
from optuna.trial import TrialState

from runs.search.replay import (
    LR,
    RECORDED,
    RecordedLauncher,
    RecordedRun,
    look_up,
    make_search_loop,
    make_study,
    past_runs,
    recorded_space,
    trials_until,
)
from viaduct.runs.search.past_runs import PastRun, add_past_runs
from viaduct.runs.search.results import read_results
from viaduct.runs.search.sampling import SamplerName
from viaduct.runs.search.search_loop import Plan


def settings_of(launcher: RecordedLauncher) -> list[dict[str, str]]:
    return [settings for _, settings in launcher.started]


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_the_same_seed_draws_the_same_trials_and_another_seed_others(sampler: SamplerName) -> None:
    drawn = []
    for seed in (1, 1, 2):
        launcher = RecordedLauncher(seed=1)
        make_search_loop(make_study(), Plan(8, sampler=sampler, seed=seed), launcher).run()
        drawn.append(settings_of(launcher))
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(drawn[0]) == 8


def test_a_search_in_two_parts_draws_what_one_in_one_part_does() -> None:
    entire, parts = RecordedLauncher(seed=1), RecordedLauncher(seed=1)
    make_search_loop(make_study(), Plan(8, seed=3), entire).run()
    study = make_study()
    looks = iter([False] * 3 + [True] * 100)
    for is_interrupted in (lambda: next(looks), lambda: False):
        make_search_loop(study, Plan(8, seed=3), parts, is_interrupted=is_interrupted).run()
    again = dict(parts.started)
    assert list(again.values()) == settings_of(entire)
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 8


def test_finished_trials_are_not_repeated_and_a_running_one_is_resumed_with_its_values() -> None:
    study, launcher = make_study(), RecordedLauncher(seed=1)
    make_search_loop(study, Plan(3), launcher).run()
    cut_off = study.ask()
    values = {dimension.path: dimension.suggest(cut_off) for dimension in recorded_space().dimensions}
    resumed = RecordedLauncher(seed=1)
    make_search_loop(study, Plan(5), resumed).run()
    assert [number for number, _ in resumed.started] == [3, 4]
    assert resumed.started[0][1] == recorded_space().make_settings(values)
    finished = RecordedLauncher(seed=1)
    assert make_search_loop(study, Plan(5), finished).run() == "done"
    assert finished.started == []


def test_more_unfinished_trials_than_slots_wait_their_turn() -> None:
    study = make_study()
    for _ in range(3):
        trial = study.ask()
        for dimension in recorded_space().dimensions:
            dimension.suggest(trial)
    search_loop = make_search_loop(study, Plan(3, parallel=1))
    assert search_loop.run() == "done"
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 3


def test_trials_in_parallel_have_slots_of_their_own() -> None:
    slots: list[int] = []

    class Slots(RecordedLauncher):
        def start(self, number: int, settings: Mapping[str, str], slot: int) -> RecordedRun:
            slots.append(slot)
            return super().start(number, settings, slot)

    study = make_study()
    make_search_loop(study, Plan(6, parallel=3), Slots(seed=1)).run()
    assert slots[:3] == [0, 1, 2]
    assert set(slots) == {0, 1, 2}
    assert len(study.trials) == 6


def test_weak_trials_are_stopped_early_and_good_ones_are_not() -> None:
    study = make_study()
    make_search_loop(study, Plan(20, pruner="hyperband", evaluations=5)).run()
    states = [trial.state for trial in study.trials]
    assert TrialState.PRUNED in states
    assert TrialState.COMPLETE in states
    pruned = [trial for trial in study.trials if trial.state == TrialState.PRUNED]
    assert all(2 <= len(trial.intermediate_values) < 5 for trial in pruned)
    assert study.best_value > max(trial.value or 0.0 for trial in pruned)


def test_a_pruned_trial_has_the_step_and_the_cause_as_its_reason() -> None:
    started: list[RecordedRun] = []

    class Kept(RecordedLauncher):
        def start(self, number: int, settings: Mapping[str, str], slot: int) -> RecordedRun:
            started.append(super().start(number, settings, slot))
            return started[-1]

    make_search_loop(make_study(), Plan(20, pruner="hyperband", evaluations=5), Kept(seed=1)).run()
    reasons = [run.marked_reason for run in started if run.marked == "pruned"]
    assert reasons
    assert all(re.match(r"stopped by hyperband after step \d+ at top1 [\d.]+ %", reason) for reason in reasons)


@pytest.mark.parametrize("values", [("0.5", "12", "1e-05"), ("-3", "1,000", "0x7f"), ("30,60", "7", ".25")])
def test_reasons_that_differ_only_in_numbers_are_the_same(values: tuple[str, str, str]) -> None:
    launcher = RecordedLauncher(1, lambda number, settings: f"size {values[number]} does not fit.")
    assert make_search_loop(make_study(), Plan(20), launcher).run() == "failing"
    assert len(launcher.started) == 3


def test_without_a_pruner_every_trial_is_trained_to_its_end() -> None:
    study = make_study()
    make_search_loop(study, Plan(12, pruner="none", evaluations=5)).run()
    assert {trial.state for trial in study.trials} == {TrialState.COMPLETE}


def test_a_trial_that_diverges_has_failed_with_its_reason_and_the_search_goes_on() -> None:
    def diverge(number: int, settings: Mapping[str, str]) -> str:
        return f"the loss became nan at step {number}" if float(settings[LR]) > 0.1 else ""

    study = make_study()
    assert make_search_loop(study, Plan(10, sampler="random"), RecordedLauncher(1, diverge)).run() == "done"
    failed = [result for result in read_results(study, recorded_space()) if result.state == "failed"]
    assert 0 < len(failed) < 10
    assert all("the loss became nan" in result.reason for result in failed)
    assert len(study.trials) == 10


def test_trials_that_all_fail_for_one_reason_end_the_search() -> None:
    study, launcher = make_study(), RecordedLauncher(1, lambda number, settings: f"no data in trial-{number:03d}")
    assert make_search_loop(study, Plan(20), launcher).run() == "failing"
    assert len(launcher.started) == 3


def test_a_search_whose_cause_of_failure_is_mended_goes_on() -> None:
    study, launcher = make_study(), RecordedLauncher(1, lambda number, settings: "no data")
    assert make_search_loop(study, Plan(6), launcher).run() == "failing"
    mended = RecordedLauncher(seed=1)
    assert make_search_loop(study, Plan(6), mended).run() == "done"
    assert [number for number, _ in mended.started] == [3, 4, 5]


def test_a_search_whose_trials_all_diverge_tries_all_of_them() -> None:
    study, launcher = make_study(), RecordedLauncher(1, lambda number, settings: f"the loss became nan at {number}")
    assert make_search_loop(study, Plan(6), launcher).run() == "done"
    assert len(launcher.started) == 6


def test_the_time_limit_leaves_unfinished_trials_for_the_next_search() -> None:
    study = make_study()
    search_loop = make_search_loop(study, Plan(5, timeout_s=0.0))
    assert search_loop.run() == "timeout"
    assert make_search_loop(study, Plan(5)).run() == "done"


def test_the_first_trial_has_the_recipes_own_values() -> None:
    launcher, own = RecordedLauncher(seed=1), {LR: 0.1, "optimizer.momentum": "0.9"}
    make_search_loop(make_study(), Plan(2, first=own), launcher).run()
    assert settings_of(launcher)[0] == {LR: "0.1", "optimizer.momentum": "0.9"}


def test_a_grid_is_walked_once_and_ends() -> None:
    from viaduct.recipes import load
    from viaduct.runs.search.space import parse_space

    space = parse_space(load("shapes_taster").recipe, [f"{LR}=0.01,0.1,1", "optimizer.momentum=0,0.9"])
    study, launcher = make_study(), RecordedLauncher(seed=1)
    search_loop = make_search_loop(study, Plan(50, sampler="grid"), launcher)
    search_loop.space = space
    assert search_loop.run() == "done"
    assert len(launcher.started) == 6
    assert len({tuple(settings.items()) for settings in settings_of(launcher)}) == 6


def test_past_runs_are_added_once_and_are_no_trials() -> None:
    study, space = make_study(), recorded_space()
    run = PastRun(Path("/past/a"), {LR: 0.3, "optimizer.momentum": "0.9"}, 0.77, 1000, seed=2)
    assert add_past_runs(study, [run], space) == 1
    assert add_past_runs(study, [run], space) == 0
    launcher = RecordedLauncher(seed=1)
    make_search_loop(study, Plan(3), launcher).run()
    assert [number for number, _ in launcher.started] == [0, 1, 2]
    assert [result.number for result in read_results(study, space)] == [None, 0, 1, 2]
    assert [result.seed for result in read_results(study, space)] == [2, 1, 1, 1]


@pytest.mark.parametrize("seed", range(1, 6))
def test_eight_trials_beat_the_worst_quarter_of_what_was_recorded(seed: int) -> None:
    study = make_study()
    make_search_loop(study, Plan(8, seed=seed, pruner="hyperband", evaluations=5)).run()
    recorded = sorted(row["top1"][-1] for row in RECORDED["trials"] if row["seed"] == 1)
    assert study.best_value > 2 * recorded[len(recorded) // 4]


@pytest.mark.lengthy
def test_past_runs_save_trials() -> None:
    """Median of five seeds until a trial has the best recorded accuracy; the past runs are of another seed."""
    best = max(look_up(1, {LR: str(row), "optimizer.momentum": "0.9"})[-1] for row in (0.1, 0.3, 1.0))
    seeds = range(1, 6)
    without = [trials_until(best, Plan(30, seed=seed), []) for seed in seeds]
    after = [trials_until(best, Plan(30, seed=seed), past_runs(2, 16, draw=100 + seed)) for seed in seeds]
    assert median(after) < median(without), (after, without)


@pytest.mark.lengthy
def test_gaussian_processes_draw_too() -> None:
    pytest.importorskip("scipy")
    launcher = RecordedLauncher(seed=1)
    study = make_study()
    add_past_runs(study, past_runs(2, 6, draw=1), recorded_space())
    make_search_loop(study, Plan(2, sampler="gp"), launcher).run()
    assert len(launcher.started) == 2
    assert isinstance(study.sampler, optuna.samplers.GPSampler)
