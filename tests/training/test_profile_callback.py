"""`viaduct train --profile`: the run is the same run, and its steps are in RUN/profile."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from training.test_loop import resume_training
from training.tiny_runs import (
    RECIPE,
    After,
    Recorder,
    build_dropout_network,
    build_normed_network,
    build_training,
    change_part,
    copy_weights,
    train_recipe,
)
from viaduct.devices import cpu
from viaduct.errors import BadData, BadValue
from viaduct.profiling.folder import read_profile
from viaduct.profiling.options import ProfilingOptions, Window
from viaduct.profiling.record import Facts, Kernel, Profile, Step
from viaduct.recipes import Ema, LoadedRecipe, Recipe
from viaduct.training import sink
from viaduct.training.callbacks import Callback, Checkpointing
from viaduct.training.checkpoint import list_checkpoints
from viaduct.training.loop import Training
from viaduct.training.profile_callback import (
    ProfileRequest,
    Profiling,
    fit_storage,
    merge_rank_folders,
    split_replays,
    write_profiles_on_error,
)
from viaduct.training.request import TrainingRequest
from viaduct.training.rundir import RunDir
from viaduct.training.session import run_training

BASE = replace(RECIPE, model=build_dropout_network)  # two epochs of five steps, with dropout
STEPS_ALONE = ProfilingOptions(operators=False)
MIDDLE = Window(3, 7)


def profiling(window: Window = MIDDLE, options: ProfilingOptions = STEPS_ALONE) -> Profiling:
    return Profiling(ProfileRequest(window, options, source="tiny"))


def profile_training(
    recipe: Recipe, folder: Path, *callbacks: Callback, options: ProfilingOptions = STEPS_ALONE
) -> Training:
    folder.mkdir()
    return train_recipe(recipe, RunDir(folder), profiling(options=options), *callbacks)


@pytest.mark.parametrize(
    "recipe",
    [
        BASE,
        replace(BASE, accumulate=2, clip_norm=0.5),
        replace(BASE, ema=Ema(0.9)),
        change_part(BASE, "data", workers=2),
    ],
    ids=["plain", "parts", "averaged", "workers"],
)
def test_weights_are_the_same_bits_with_a_profile(tmp_path: Path, recipe: Recipe) -> None:
    (tmp_path / "plain").mkdir()
    alone = train_recipe(recipe, RunDir(tmp_path / "plain"))
    beside = profile_training(recipe, tmp_path / "profiled", options=ProfilingOptions())
    assert all(torch.equal(tensor, copy_weights(alone)[name]) for name, tensor in copy_weights(beside).items())
    found = read_profile(tmp_path / "profiled" / "profile")
    assert [step.number for step in found.steps] == [3, 4, 5, 6, 7]
    assert found.operators
    assert (found.facts.timed_steps, found.facts.recorded_steps) == (4, 1)


def test_no_other_step_is_profiled(tmp_path: Path) -> None:
    run = profile_training(BASE, tmp_path / "run")
    found = read_profile(tmp_path / "run" / "profile")
    assert [step.number for step in found.steps] == [3, 4, 5, 6, 7]
    assert found.facts.warmup_steps == 1  # step 2: its end is what step 3 is measured from
    assert all(step.previous_end_us is not None for step in found.steps)
    assert all(step.loader_wait_us is not None for step in found.steps)
    assert found.facts.batch == 8
    assert found.facts.source == "tiny"
    assert not run.model._forward_pre_hooks


def test_phases_add_up_to_the_iteration(tmp_path: Path) -> None:
    profile_training(BASE, tmp_path / "run")
    for step in read_profile(tmp_path / "run" / "profile").steps:
        assert step.data_tail_us is not None
        total = step.data_tail_us + step.forward_backward_us + step.update_tail_us
        assert total == pytest.approx(step.iteration_us, rel=1e-6)
        assert step.data_tail_us >= (step.loader_wait_us or 0.0)


def test_evaluations_and_checkpoints_between_steps_are_named(tmp_path: Path) -> None:
    profile_training(change_part(BASE, "checkpoint", every_steps=6), tmp_path / "run", Checkpointing())
    steps = read_profile(tmp_path / "run" / "profile").steps
    assert {step.number: step.interrupted_by for step in steps if step.interrupted_by} == {
        5: "evaluation, checkpoint",  # after five steps, and a new best
        6: "checkpoint",
    }


@pytest.mark.parametrize(("last", "recorded"), [(4, 1), (5, 0), (6, 1), (9, 2)])
def test_no_planned_evaluation_is_recorded_with_the_steps(run: RunDir, last: int, recorded: int) -> None:
    """Evaluations come after 5 and 10 steps: right before step 5."""
    own = Profiling(ProfileRequest(Window(last - 8 if last > 7 else 0, last)))
    done = train_recipe(BASE, run, own)
    found = read_profile(run.path / "profile")
    assert (done.progress.evaluation_every, found.facts.recorded_steps) == (5, recorded)
    assert any("No operators: an evaluation" in note for note in found.facts.notes) == (recorded == 0)
    assert bool(found.operators) == bool(recorded)


def test_a_checkpoint_that_nobody_planned_is_reported_to_be_among_the_operators(run: RunDir) -> None:
    own = Profiling(ProfileRequest(Window(1, 4)))
    train_recipe(BASE, run, own, After(4, lambda training: str(training.save())))  # type: ignore[arg-type,return-value]
    notes = read_profile(run.path / "profile").facts.notes
    assert "The operators include those of a checkpoint between the recorded steps." in notes


def test_a_run_that_goes_on_profiles_the_steps_that_are_left(tmp_path: Path) -> None:
    uninterrupted = train_recipe(BASE, RunDir(tmp_path / "whole"), Checkpointing())
    run = RunDir(tmp_path / "parts")
    first = build_training(BASE, run, profiling(), Checkpointing(), read_signal=lambda: first.step >= 5)
    with first.train_batches, first.validation:
        assert first.fit() == "interrupted"
    early = read_profile(run.path / "profile")
    (profiled,) = (callback for callback in first.callbacks if isinstance(callback, Profiling))
    assert "Profile of steps 3-7, incomplete (interrupted after step 5): " in profiled.describe_outcome()[-1]
    assert [step.number for step in early.steps] == [3, 4]
    assert early.facts.ended == "interrupted after step 5"
    again = resume_training(BASE, run, list_checkpoints(run.checkpoints)[-1], profiling())  # type: ignore[arg-type]
    assert [step.number for step in read_profile(run.path / "profile").steps] == [5, 6, 7]
    assert all(torch.equal(tensor, copy_weights(uninterrupted)[name]) for name, tensor in copy_weights(again).items())


def test_ranks_without_a_profile_are_named_in_the_merged_one(tmp_path: Path) -> None:
    profile_training(BASE, tmp_path / "run")
    shutil.copytree(tmp_path / "run/profile", tmp_path / "ranks/rank_0")
    (note,) = merge_rank_folders(tmp_path / "ranks", ranks=2)
    assert note == "The merged profile lacks rank_1: no profile was written there."
    assert note in read_profile(tmp_path / "ranks").facts.notes


def test_a_run_that_is_past_the_range_goes_on_and_says_so(run: RunDir) -> None:
    train_recipe(replace(BASE, epochs=1), run, Checkpointing())
    late = Profiling(ProfileRequest(Window(1, 3)))
    resume_training(BASE, run, list_checkpoints(run.checkpoints)[-1], late)  # type: ignore[arg-type]
    assert not (run.path / "profile").exists()
    assert late.describe_outcome()[-1].startswith("--profile 1-3: nothing was profiled")


def test_an_error_leaves_what_was_collected(run: RunDir) -> None:
    def fail(training: Training) -> None:
        raise BadData("image 7 cannot be read.")

    own = profiling()
    broken = build_training(BASE, run, own, After(5, fail))
    with broken.train_batches, broken.validation, pytest.raises(BadData), write_profiles_on_error([own], broken):
        broken.fit()
    found = read_profile(run.path / "profile")
    assert [step.number for step in found.steps] == [3, 4]
    assert found.facts.ended == "BadData after step 5: image 7 cannot be read."


def test_a_profile_that_cannot_be_written_does_not_end_the_run(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    own = Profiling(ProfileRequest(Window(3, 7), STEPS_ALONE), folder=tmp_path / "taken")
    (tmp_path / "run").mkdir()
    assert train_recipe(BASE, RunDir(tmp_path / "run"), own).step == 10
    (line,) = own.describe_outcome()
    assert "could not be written" in line


@pytest.mark.parametrize("window", [Window(5, 10), Window(100, 120)])
def test_steps_that_the_run_does_not_have_are_refused(run: RunDir, window: Window) -> None:
    with pytest.raises(BadValue, match=f"--profile {window}: the run has 10 steps, 0 to 9"):
        ProfileRequest(window).check_training(build_training(BASE, run))


def test_an_evaluation_alone_has_no_steps_to_profile() -> None:
    with pytest.raises(BadValue, match="an evaluation takes no steps"):
        ProfileRequest(Window(0, 3)).check_recipe(change_part(BASE, "evaluation", eval_only=True))


def run_request(run: RunDir, request: ProfileRequest | None) -> None:
    loaded = LoadedRecipe("tiny", change_part(BASE, "checkpoint", every_steps=4), "Tiny.", None)
    run_training(TrainingRequest(loaded, run, None, "cpu", "auto", "viaduct train tiny", profile=request))


def test_the_report_of_a_run_without_a_profile_does_not_mention_one(tmp_path: Path) -> None:
    run_request(RunDir(tmp_path / "run"), None)
    assert "profiled" not in (tmp_path / "run" / "report.html").read_text()


def test_the_report_of_the_run_leads_to_that_of_its_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_request(RunDir(tmp_path / "run"), ProfileRequest(MIDDLE, source="tiny"))
    assert 'href="profile/report.html"' in (tmp_path / "run" / "report.html").read_text()
    assert (tmp_path / "run" / "profile" / "report.html").is_file()
    assert f"Profile of steps 3-7: {tmp_path}/run/profile/report.html" in capsys.readouterr().err


def test_options_choose_the_folder_which_the_report_names(tmp_path: Path) -> None:
    """PROFILING_MODE without --profile: this run of ten steps is profiled as a whole."""
    run_request(RunDir(tmp_path / "run"), ProfileRequest(None, ProfilingOptions(output=tmp_path / "elsewhere")))
    assert [step.number for step in read_profile(tmp_path / "elsewhere").steps] == list(range(10))
    assert "elsewhere" in (tmp_path / "run" / "report.html").read_text()
    assert not (tmp_path / "run" / "profile").exists()


def test_a_refused_range_leaves_no_run(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="the run has 10 steps"):
        run_request(RunDir(tmp_path / "run"), ProfileRequest(Window(5, 10)))
    assert not (tmp_path / "run" / "recipe.json").exists()


def test_a_finished_run_says_that_nothing_was_profiled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunDir(tmp_path / "run")
    run_request(run, None)
    run_request(run, ProfileRequest(MIDDLE))
    assert "Nothing was profiled" in capsys.readouterr().err


# The points of the forward and the backward pass.


# Captured steps.


@pytest.fixture
def capturing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor says that it can capture, and what is captured runs again when it is replayed."""
    monkeypatch.setattr(cpu, "get_graph_class", lambda: object)
    monkeypatch.setattr(sink, "capture_graph", lambda device, work: work)


@pytest.mark.usefixtures("capturing")
def test_sinks_stay_sinks_and_each_of_their_steps_is_timed(tmp_path: Path) -> None:
    recipe = change_part(replace(RECIPE, model=build_normed_network, epochs=3, sink="auto"), "log", every_steps=5)
    (tmp_path / "plain").mkdir()
    alone = train_recipe(recipe, RunDir(tmp_path / "plain"))
    observer = Recorder()
    observer.every_step = False
    beside = profile_training(recipe, tmp_path / "run", observer)
    assert beside.sink is not None
    assert beside.sink.replay is not None
    assert observer.at("step") == [5, 10, 15]
    assert all(torch.equal(tensor, copy_weights(alone)[name]) for name, tensor in copy_weights(beside).items())
    found = read_profile(tmp_path / "run" / "profile")
    assert [step.number for step in found.steps] == [3, 4, 5, 6, 7]
    assert found.facts.mode.endswith("sink 5")
    assert found.facts.phases_found_by[-1].startswith("Captured steps")
    assert not found.facts.phases_measured
    assert any("not known where the backward pass ends" in note for note in found.facts.notes)


def replays(kernels: list[Kernel]) -> Profile:
    steps = [Step(0, 7, 1000.0, 2000.0, 2000.0, 900.0), Step(0, 8, 2100.0, 2500.0, 3100.0, 2000.0)]
    return split_replays(Profile(Facts("tiny", "recipe"), steps, kernels=kernels), {7})


def test_a_replay_is_divided_by_the_kernels_of_the_update() -> None:
    kernels = [Kernel("fprop", "convolution", 1, 750.0), Kernel("multi_tensor_apply", "optimizer", 1, 250.0)]
    found = replays(kernels)
    assert [step.backward_end_us for step in found.steps] == [1750.0, 2500.0]  # the second one was no replay
    assert "25.0% of the kernels' time" in found.facts.notes[0]
    assert found.facts.phases_measured


def test_a_replay_whose_update_is_not_known_has_no_phases() -> None:
    found = replays([Kernel("fprop", "convolution", 1, 750.0)])
    assert [step.backward_end_us for step in found.steps] == [2000.0, 2500.0]
    assert not found.facts.phases_measured


def test_a_trace_beyond_the_limit_is_cut_and_says_so() -> None:
    events = [{"name": f"operator {number}", "ts": float(number)} for number in range(100)]
    size = sum(len(json.dumps(event)) + 2 for event in events[:40])
    profile, kept = fit_storage(Profile(Facts("tiny", "recipe")), events, size)
    assert len(kept) == 40
    assert profile.facts.notes == ("storage_limit: the trace has 40 of 100 recorded events.",)
    assert fit_storage(Profile(Facts("tiny", "recipe")), events, None)[1] == events
