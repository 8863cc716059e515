"""Recipe file of the best trial, for `viaduct train`: the recipe of the search with the values of the trial.

base = load("shapes_taster").recipe
recipe = replace(base, optimizer=replace(base.optimizer, lr=0.3))
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from viaduct import recipes
from viaduct.atomic_files import write_file
from viaduct.recipes import LoadedRecipe, Recipe
from viaduct.recipes._fields import override, override_fields


def apply_settings(recipe: Recipe, settings: Mapping[str, str]) -> Recipe:
    """Return a recipe with the fields in `settings` ({"optimizer.lr": "0.3"}) set, in the order of the mapping."""
    if "epochs" in settings and "steps" not in settings:
        recipe = override(recipe, "steps", "0")  # otherwise `steps` would win over `epochs`
    return override_fields(recipe, settings.items())


def write_recipe(path: Path, base: LoadedRecipe, recipe: Recipe, headline: str) -> None:
    """Write a recipe file; `base` is the recipe of the search, `recipe` the same with the values of a trial."""
    write_file(path, render_recipe(base, recipe, headline).encode())


def render_recipe(base: LoadedRecipe, recipe: Recipe, headline: str) -> str:
    """Return the text of the recipe file; `headline` is its docstring."""
    source = base.name if base.file is None else str(base.file)
    expression = render_changes("base", base.recipe, recipe)
    classes = sorted(name for name in recipes.__all__ if name[0].isupper() and f"{name}(" in expression)
    names = ", ".join([*classes, "load", "replace"])
    return (
        f'"""{headline}"""\n\nfrom viaduct.recipes import {names}\n\n'
        f"base = load({source!r}).recipe\nrecipe = {expression}\n"
    )


def render_changes(name: str, before: Any, after: Any) -> str:
    """Return a Python expression that makes `after` from `before`, whose own expression is `name`: `base.optimizer`."""
    changes = []
    for entry in dataclasses.fields(before):
        old, new = getattr(before, entry.name), getattr(after, entry.name)
        if old == new:
            continue
        nested = dataclasses.is_dataclass(old) and type(old) is type(new)
        changes.append(f"{entry.name}={render_changes(f'{name}.{entry.name}', old, new) if nested else repr(new)}")
    return f"replace({name}, {', '.join(changes)})" if changes else name
