"""The recipe file of a trial means the recipe that the trial was trained with."""

from __future__ import annotations

from pathlib import Path

import pytest

from viaduct.recipes import AdamW, load, load_file
from viaduct.runs.search.best_recipe import apply_settings, render_recipe, write_recipe


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"optimizer.lr": "0.30000000000000004", "schedule.warmup_epochs": "2.5"},
        {"optimizer": "AdamW", "optimizer.lr": "0.001"},
        {"schedule": "Steps", "schedule.boundaries": "1,2", "schedule.factors": "1,0.1,0.01"},
        {"data.cutout": "8", "optimizer.nesterov": "false", "mixup": "0.2", "precision.compute": "fp32"},
    ],
)
def test_the_file_gives_the_recipe_back(tmp_path: Path, settings: dict[str, str]) -> None:
    base = load("shapes_taster")
    if "schedule" in settings:  # boundaries and factors change together
        base_recipe = base.recipe
        from viaduct.recipes import Steps, replace

        recipe = replace(base_recipe, schedule=Steps(boundaries=(1, 2), factors=(1, 0.1, 0.01)))
    else:
        recipe = apply_settings(base.recipe, settings)
    write_recipe(tmp_path / "best.py", base, recipe, "A headline.")
    loaded = load_file(tmp_path / "best.py")
    assert loaded.recipe == recipe
    assert loaded.summary == "A headline."


def test_only_what_differs_is_written() -> None:
    base = load("shapes_taster")
    text = render_recipe(base, apply_settings(base.recipe, {"optimizer.lr": "0.5"}), "")
    assert "recipe = replace(base, optimizer=replace(base.optimizer, lr=0.5))" in text


def test_an_own_recipe_file_is_named_by_its_path(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from viaduct.recipes import load\nrecipe = load('shapes_taster').recipe\n")
    base = load(str(file))
    recipe = apply_settings(base.recipe, {"optimizer.lr": "0.5"})
    write_recipe(tmp_path / "best.py", base, recipe, "")
    assert load_file(tmp_path / "best.py").recipe == recipe


def test_epochs_replace_steps() -> None:
    recipe = apply_settings(load("shapes_taster").recipe, {"steps": "100"})
    assert apply_settings(recipe, {"epochs": "2"}).steps == 0
    assert isinstance(apply_settings(recipe, {"optimizer": "AdamW"}).optimizer, AdamW)
