"""Positions of a profile's time points within a step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from training.tiny_runs import RECIPE, build_dropout_network, build_plain_network, build_training, train_recipe
from viaduct.errors import UnknownName
from viaduct.profiling.collector import Plan
from viaduct.profiling.folder import read_profile
from viaduct.profiling.options import ProfilingOptions, Window
from viaduct.recipes import Recipe
from viaduct.training import profile_callback
from viaduct.training.callbacks import Callback
from viaduct.training.loop import Training
from viaduct.training.profile_callback import ProfileRequest, Profiling
from viaduct.training.rundir import RunDir

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


class Order(nn.Module):
    """Two layers that write down when they run."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.body, self.head = build_plain_network(6), nn.Linear(6, classes)

    def forward(self, images: Any) -> Any:
        return self.head(self.body(images))


def test_a_point_that_is_no_module_is_refused_with_the_closest(run: RunDir) -> None:
    request = ProfileRequest(None, ProfilingOptions(bp_point="hea"))
    with pytest.raises(UnknownName, match="Closest is 'head'"):
        request.check_training(build_training(replace(BASE, model=Order), run))


def test_the_points_move_the_marks_into_the_network(tmp_path: Path) -> None:
    """Between the forward pass of the head and the end of its backward pass lies less than the whole of both."""
    options = ProfilingOptions(operators=False, fp_point="head", bp_point="head")
    profile_training(replace(BASE, model=Order), tmp_path / "run", options=options)
    found = read_profile(tmp_path / "run" / "profile")
    assert [step.number for step in found.steps] == [3, 4, 5, 6, 7]
    assert found.facts.phases_found_by[0] == "Forward start: the forward pass of 'head' (fp_point)."
    assert found.facts.phases_found_by[1] == "Backward end: the end of the backward pass of 'head' (bp_point)."
    for step in found.steps:
        assert 0 < step.forward_backward_us < step.iteration_us


def test_a_first_layer_without_gradients_of_its_input_ends_the_backward_pass(tmp_path: Path) -> None:
    options = ProfilingOptions(operators=False, bp_point="0")
    profile_training(BASE, tmp_path / "run", options=options)
    for step in read_profile(tmp_path / "run" / "profile").steps:
        assert step.forward_start_us < step.backward_end_us < step.end_us


class Marks:
    """A collector that writes down what it is told; the network and the optimizer write into the same list."""

    log: list[str]
    done, ended_steps = False, 0

    def __init__(self, plan: Plan, device: str, rank: int) -> None:
        self.plan = plan

    def add_network(self, root: object) -> None: ...

    def mark_interruption(self, kind: str) -> None: ...

    def mark_loader_wait(self, began_us: float, ended_us: float) -> None:
        self.log.append("wait")

    def mark_forward_start(self) -> None:
        self.log.append("forward start")

    def mark_backward_end(self) -> None:
        self.log.append("backward end")

    def mark_step_end(self) -> None:
        self.log.append("step end")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    log: list[str] = []
    monkeypatch.setattr(Marks, "log", log, raising=False)
    monkeypatch.setattr(profile_callback, "Collector", Marks)
    monkeypatch.setattr(Profiling, "write", lambda *words, **more: None)
    return log


def watch(training: Training, log: list[str]) -> None:
    batches, network, optimizer = training.iterate_batches, training.model, training.optimizer

    def fetch() -> Iterator[Any]:
        for batch in batches():
            log.append("batch")
            yield batch

    training.iterate_batches = fetch  # type: ignore[method-assign]
    network.register_forward_pre_hook(lambda module, inputs: log.append("network"))
    next(network.parameters()).register_post_accumulate_grad_hook(lambda parameter: log.append("gradient"))
    optimizer.register_step_post_hook(lambda *words: log.append("update"))


@pytest.mark.parametrize("parts", [1, 2])
def test_the_marks_stand_where_the_book_has_them(run: RunDir, log: list[str], parts: int) -> None:
    recipe = replace(BASE, model=build_plain_network, accumulate=parts, steps=2)
    watched = build_training(recipe, run, Profiling(ProfileRequest(Window(0, 1))))
    watch(watched, log)
    with watched.train_batches, watched.validation:
        watched.fit()
    part = ["forward start", "network", "gradient", "backward end"]
    step = ["batch", "wait", *part * parts, "update", "step end"]
    assert log[: 2 * len(step)] == step * 2
