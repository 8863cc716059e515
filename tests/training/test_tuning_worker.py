"""The tuner's worker for a recipe: whole steps, and the number of threads as one of its operators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from training import tiny_runs
from training.tiny_runs import RECIPE, Recorder, build_normed_network, build_training, change_part
from viaduct.profiling.collector import Plan
from viaduct.recipes import LoadedRecipe, Thor
from viaduct.training.profiled import RecipeJob
from viaduct.training.rundir import RunDir
from viaduct.training.tuning_worker import (
    RecipeStep,
    ThreadCounts,
    find_module_obstacle,
    make_step_signature,
    make_threads_space,
)

TINY = LoadedRecipe("tiny", replace(RECIPE, model=build_normed_network), "Tiny.", None)


@pytest.fixture
def step() -> Iterator[RecipeStep]:
    job = RecipeJob(TINY, Path("unused"), Plan(1, 1, 0), "cpu")
    step = RecipeStep(job)
    yield step
    step.folder.cleanup()


@pytest.mark.parametrize(
    ("default", "counts"), [(1, (1,)), (2, (1, 2)), (6, (1, 2, 4, 6)), (8, (1, 2, 4, 8)), (9, (1, 2, 4, 8, 9))]
)
def test_numbers_of_threads_are_powers_of_two_up_to_the_default(default: int, counts: tuple[int, ...]) -> None:
    space = make_threads_space(default)
    assert [parameter.values for parameter in space.parameters] == [counts]
    assert space.default == {"threads": default}


def test_a_step_of_another_size_is_another_step_in_the_bank(run: RunDir) -> None:
    def key(recipe: Any, name: str = "tiny") -> str:
        return make_step_signature(build_training(recipe, run), name).key

    assert key(RECIPE) == key(replace(RECIPE, seed=99))
    others = [
        key(change_part(RECIPE, "data", global_batch=4)),
        key(replace(RECIPE, accumulate=2)),
        key(replace(RECIPE, model=build_normed_network)),
        key(change_part(RECIPE, "precision", compute="bf16")),
        key(RECIPE, "another"),
    ]
    assert len({key(RECIPE), *others}) == 6


def test_modules_keep_their_default_where_something_else_looks_at_them(run: RunDir) -> None:
    assert find_module_obstacle(build_training(replace(RECIPE, sink=0), run)) is None
    assert "THOR" in str(find_module_obstacle(build_training(replace(RECIPE, optimizer=Thor()), run)))

    watcher = Recorder()
    watcher.needs_every_step = True
    assert "callback observes every operator" in str(find_module_obstacle(build_training(RECIPE, run, watcher)))


def test_a_step_is_observed_with_its_operators(step: RecipeStep) -> None:
    answer = step.observe({})
    kinds = [operator["signature"]["kind"] for operator in answer["operators"]]
    assert {"conv2d", "linear", "optimizer"} == set(kinds)
    assert all(operator["count"] == 1 for operator in answer["operators"])
    assert (answer["batch"], answer["device"], answer["obstacle"]) == (8, "cpu", None)
    assert answer["step_us"] > 0
    assert step.training.step >= 5, "warm-up and timed steps"


def test_another_number_of_threads_has_the_loss_of_the_default_and_takes_no_step(step: RecipeStep) -> None:
    counts = ThreadCounts(step)
    signature = make_step_signature(step.training, "tiny")
    before = tiny_runs.copy_weights(step.training)
    losses = [
        counts.make_work(signature, {"threads": 2}, "cpu", exact).read_values()[0][1].item() for exact in (True, False)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=counts.MIN_ERROR)
    after = tiny_runs.copy_weights(step.training)
    changed = {name for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert changed <= {name for name in before if "running" in name or "num_batches" in name}
    assert all(parameter.grad is None for parameter in step.training.model.parameters())
