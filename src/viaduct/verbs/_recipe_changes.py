"""Recipes changed by flags and by `--set FIELD=VALUE`, for the verbs that take a recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from viaduct.errors import BadValue

if TYPE_CHECKING:
    from viaduct.recipes import LoadedRecipe

# Parameters of the verbs that take a recipe.
RecipeArgument = Annotated[
    str, typer.Argument(help="A recipe's name (`viaduct train --list`) or your own recipe file.", metavar="RECIPE")
]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda, npu, mlu; or one card: cuda:1.")]
PrecisionOption = Annotated[
    str | None, typer.Option(help="auto, fp32, bf16, fp16, or a level O0 to O3.", show_default="the recipe's")
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change any field of the recipe; may be repeated.", metavar="FIELD=VALUE"),
]


def resolve_recipe(
    recipe: str, run: Path | None, changes: list[tuple[str, str]]
) -> tuple[LoadedRecipe, dict[str, Any]]:
    """Return a recipe with the changes (field, value), and the contents of recipe.json if it is the recipe of a run.

    `recipe` is a name or a file; if it is empty, the recipe is that of the run. Without a run, the contents are {}.
    """
    from viaduct.recipes import load
    from viaduct.recipes._fields import override_fields

    stored: dict[str, Any] = {}
    if recipe:
        loaded = load(recipe)
    elif run is None:
        raise BadValue("which recipe?", "`viaduct train --list` shows them; `viaduct train --run DIR` continues a run.")
    else:
        loaded, stored = open_run(run)
    texts = dict(changes)
    check_flags(texts, loaded)
    if "epochs" in texts:
        changes = [*changes, ("steps", "0")]  # a run begun with --steps would otherwise ignore --epochs
    changed = replace(loaded, recipe=override_fields(loaded.recipe, changes))
    return apply_source(changed, "data.size" in texts), stored


def open_run(run: Path) -> tuple[LoadedRecipe, dict[str, Any]]:
    """Return the recipe of a run, and the contents of its recipe.json."""
    from viaduct.training.rundir import RunDir

    return RunDir(run).load_recipe(), RunDir(run).read_recipe_json()


def apply_source(loaded: LoadedRecipe, size_given: bool) -> LoadedRecipe:
    """Replace `data.preprocess="source"` by preprocessing and image size of the network in timm or torchvision."""
    if getattr(loaded.recipe.data, "preprocess", "") != "source":
        return loaded
    from viaduct.training.networks import apply_source_settings

    keep_size = size_given or loaded.file is not None  # the user chose the size
    return replace(loaded, recipe=apply_source_settings(loaded.recipe, keep_size=keep_size))


def check_flags(changes: dict[str, str], loaded: LoadedRecipe) -> None:
    """Raise BadValue for changes {field: value} that contradict each other, fields that the data lack, and 0 steps."""
    for field in ("on_bad_record", "increased_aug", "brightness", "contrast", "saturation", "hue"):
        if f"data.{field}" in changes and not hasattr(loaded.recipe.data, field):
            flag = f"--{field.replace('_', '-')}"
            raise BadValue(
                f"{flag}: {loaded.name} trains on {loaded.recipe.data.name}, which has no records.",
                "It is for recipes that train on TFRecord files or folders of images.",
            )
    if "steps" in changes and "epochs" in changes:
        raise BadValue("--steps and --epochs both say how long to train.", "Give one of them.")
    if (steps := changes.get("steps", "").strip()) == "0" or steps.startswith("-"):
        raise BadValue(f"steps is {steps}; it must be 1 or more.")


def merge_changes(flags: Mapping[str, tuple[str, object]], settings: Sequence[str] | None) -> list[tuple[str, str]]:
    """Return the changes (field, value) of `flags` {name: (field, value)} and of `--set`; refuse contradictions.

    A flag whose value is None was not given.
    """
    given = {name: (path, str(value)) for name, (path, value) in flags.items() if value is not None}
    by_field = {path: (name, text) for name, (path, text) in given.items()}
    changes = list(map(split_setting, settings or []))
    for path, text in changes:
        if path in by_field and not is_same_value(text, by_field[path][1]):
            name, flag_text = by_field[path]
            flag = "--" + name.replace("_", "-")
            raise BadValue(f"{flag} {flag_text} and --set {path}={text} contradict each other.", "Give one of them.")
    return [*given.values(), *changes]


def is_same_value(text: str, other: str) -> bool:
    """Return True for equal numbers (4 and 4.0), and for texts that differ only in case."""
    if text == other:
        return True
    try:
        return float(text) == float(other)
    except ValueError:
        return text.lower() == other.lower()


def split_setting(setting: str) -> tuple[str, str]:
    path, equals, text = setting.partition("=")
    if not equals:
        raise BadValue(f"--set {setting} has no value.", "Write it as --set optimizer.lr=0.05")
    return path.strip(), text.strip()
