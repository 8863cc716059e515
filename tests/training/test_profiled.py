"""`viaduct profile run RECIPE`: the steps of a recipe, in a run that nobody keeps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from forked_viaduct import viaduct
from training.tiny_runs import RECIPE, After
from viaduct.data.synthetic import SYNTHETIC
from viaduct.errors import BadData, UnknownName
from viaduct.profiling.collector import Plan
from viaduct.profiling.folder import read_profile
from viaduct.recipes import LoadedRecipe, Recipe, load
from viaduct.training.loop import Training
from viaduct.training.profiled import RecipeJob, prepare_recipe, profile_recipe

TINY = LoadedRecipe("tiny", replace(RECIPE, steps=4), "Tiny.", None)
STEPS = Plan(skip=2, timed=5, recorded=0)
OWN = """
from viaduct.recipes import Log, Precision, Recipe, Sgd, Shapes

recipe = Recipe(
    model="resnet20_quick",
    data=Shapes(global_batch=16, size=16, train_images=64, validation_images=16),
    optimizer=Sgd(lr=0.1),
    epochs=1,
    precision=Precision("fp32"),
)
"""


def test_a_field_that_is_none_is_refused_before_a_step(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"no field called 'optimizer\.rate'"):
        profile_recipe(RecipeJob(TINY, tmp_path / "prof", STEPS, "cpu", settings=[("optimizer.rate", "1")]))
    assert not (tmp_path / "prof").exists()


def test_data_that_are_needed_are_requested(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="--data synthetic trains on noise"):
        profile_recipe(RecipeJob(load("resnet50_imagenet"), tmp_path / "prof", STEPS, "cpu"))


def test_steps_go_on_beyond_the_end_of_the_recipe_and_nothing_else_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Training, "evaluate", lambda self: pytest.fail("nothing is evaluated"))
    monkeypatch.setattr(Training, "save", lambda self: pytest.fail("nothing is saved"))
    found = profile_recipe(RecipeJob(TINY, tmp_path / "prof", STEPS, "cpu", command="viaduct profile run tiny"))
    assert [step.number for step in found.steps] == [2, 3, 4, 5, 6]
    assert (found.facts.warmup_steps, found.facts.timed_steps, found.facts.recorded_steps) == (2, 5, 0)
    assert (found.facts.kind, found.facts.source, found.facts.batch) == ("recipe", "tiny", 8)
    assert found.facts.command == "viaduct profile run tiny"
    assert found.facts.notes == ()
    assert [path.name for path in tmp_path.iterdir()] == ["prof"]


def test_an_error_in_a_step_leaves_what_was_collected_and_is_passed_on(tmp_path: Path) -> None:
    def fail(training: Training) -> None:
        raise BadData("image 7 cannot be read.")

    broken = replace(TINY, recipe=replace(TINY.recipe, callbacks=(After(4, fail),)))
    with pytest.raises(BadData, match="image 7"):
        profile_recipe(RecipeJob(broken, tmp_path / "prof", STEPS, "cpu"))
    found = read_profile(tmp_path / "prof")
    assert [step.number for step in found.steps] == [2, 3]
    assert found.facts.ended == "BadData after step 4: image 7 cannot be read."


def prepare_tiny(recipe: Recipe, kind: str, ranks: int = 1, **more: object) -> tuple[Recipe, list[str]]:
    job = RecipeJob(replace(TINY, recipe=recipe), Path("prof"), STEPS, **more)  # type: ignore[arg-type]
    return prepare_recipe(job, kind, ranks)


def test_a_batch_that_was_requested_stays() -> None:
    asked = prepare_tiny(load("shapes_taster").recipe, "cpu", settings=[("data.global_batch", "32")])
    assert (asked[0].data.global_batch, asked[1]) == (32, [])
    assert prepare_tiny(load("shapes_taster").recipe, "cuda")[0].data.global_batch == 64
    assert prepare_tiny(RECIPE, "cpu")[0].data.global_batch == 8


def test_on_a_processor_a_large_batch_becomes_small_and_the_profile_says_so() -> None:
    recipe, notes = prepare_tiny(load("shapes_taster").recipe, "cpu", ranks=2)
    assert recipe.data.global_batch == 16
    assert notes == ["The batch is 16 in place of the recipe's 64: this is a CPU."]


def test_noise_is_reported_to_measure_no_loader() -> None:
    recipe, notes = prepare_tiny(load("resnet50_imagenet").recipe, "cuda", data=SYNTHETIC)
    assert recipe.data.classes == load("resnet50_imagenet").recipe.data.classes
    assert notes == ["The images are noise that is made on the device: loading of images was not measured."]


def test_two_ranks_have_a_folder_each_and_one_for_both(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    found = profile_recipe(RecipeJob(load(str(file)), tmp_path / "prof", Plan(2, 3, 1), "cpu"), ranks=2)
    assert found.ranks == [0, 1]
    assert [step.number for step in found.regular_steps_of(0)] == [2, 3, 4]
    assert found.facts.ranks == 2
    assert "before the wait for the last bucket" in found.facts.phases_found_by[1]
    assert any(step.collectives for step in found.steps)
    for rank in (0, 1):
        assert read_profile(tmp_path / "prof" / f"rank_{rank}").ranks == [rank]


def test_the_environment_and_the_flag_reach_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    monkeypatch.setenv("PROFILING_MODE", "true")
    monkeypatch.setenv("PROFILING_OPTIONS", f'{{"output": "{tmp_path}/prof", "task_trace": "off", "aicpu": "on"}}')
    words = ["train", file, "--run", tmp_path / "run", "--device", "cpu", "--steps", "6", "--profile", "2-4"]
    answer = viaduct(*words)
    assert answer.returncode == 0, answer.stderr
    assert "aicpu has no effect here" in answer.stderr
    assert f"Profile of steps 2-4: {tmp_path}/prof/report.html" in answer.stderr
    found = read_profile(tmp_path / "prof")
    assert [step.number for step in found.steps] == [2, 3, 4]
    assert not found.operators


def test_a_mistake_in_the_environment_is_named_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PROFILING_MODE", "true")
    monkeypatch.setenv("PROFILING_OPTIONS", '{"taks_trace": "on"}')
    answer = viaduct("train", "shapes_taster", "--run", tmp_path / "run")
    assert answer.returncode == 2
    assert "no key is called 'taks_trace'" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert not (tmp_path / "run").exists()
