"""Recipes: one file each; living in this folder is registration.

from viaduct.recipes import Recipe, Sgd, Cosine, Shapes, Cifar10, …    to write one
load("resnet50_cifar10")   load("./mine.py")                         to get one
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

from viaduct.data.cifar10 import Cifar10
from viaduct.data.shapes import Shapes
from viaduct.data.source import Arrays, Images, ImageSet, Split
from viaduct.errors import BadValue, UnknownName
from viaduct.recipes._parts import (
    AdamW,
    BookCosine,
    Checkpoint,
    Constant,
    Cosine,
    CrossEntropy,
    Evaluation,
    Log,
    Precision,
    Recipe,
    Sgd,
    Steps,
    Top1,
)

__all__ = [
    "AdamW",
    "Arrays",
    "BookCosine",
    "Checkpoint",
    "Cifar10",
    "Constant",
    "Cosine",
    "CrossEntropy",
    "Evaluation",
    "ImageSet",
    "Images",
    "Loaded",
    "Log",
    "Precision",
    "Recipe",
    "Sgd",
    "Shapes",
    "Split",
    "Steps",
    "Top1",
    "load",
    "names",
    "replace",
]


@dataclass(frozen=True)
class Loaded:
    """A recipe, where it came from, and what its file says of it."""

    name: str
    recipe: Recipe
    docstring: str
    file: Path | None  # None: one of ours

    @property
    def summary(self) -> str:
        return self.docstring.strip().split("\n")[0]


def names() -> list[str]:
    return sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))


def load(word: str) -> Loaded:
    """The recipe of that name, or in the file at that path."""
    if word.endswith(".py") or "/" in word:
        return load_file(Path(word))
    if word not in names():
        raise UnknownName("recipe", word, names(), f"`viaduct train --list` shows all {len(names())}.")
    module = importlib.import_module(f"viaduct.recipes.{word}")
    return Loaded(word, module.recipe, module.__doc__ or "", None)


def load_file(path: Path) -> Loaded:
    if not path.is_file():
        raise BadValue(f"there is no recipe file {str(path)!r}.", "`viaduct train --list` shows the recipes by name.")
    module = execute(path.resolve())
    recipe = getattr(module, "recipe", None)
    if not isinstance(recipe, Recipe):
        found = "does not define `recipe`" if recipe is None else f"defines `recipe` as a {type(recipe).__name__}"
        raise BadValue(f"{path} {found}.", "It needs a line such as: recipe = Recipe(model=…, data=…)")
    return Loaded(path.stem, recipe, module.__doc__ or "", path.resolve())


def execute(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"viaduct_recipe_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # so that its classes can find their module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))  # so that it can import its neighbours
    try:
        spec.loader.exec_module(module)
    except BadValue:
        raise
    except Exception as error:
        raise BadValue(f"the recipe file failed: {type(error).__name__}: {error}", place_of(error, path)) from error
    return module


def place_of(error: Exception, path: Path) -> str:
    frames = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = error.lineno if isinstance(error, SyntaxError) else frames[-1] if frames else None
    return f"in {path}, line {line}" if line else f"in {path}"
