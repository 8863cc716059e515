"""Builds the network of a recipe and moves it to a device."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from viaduct import models
from viaduct.data.pillow_views import PillowViews
from viaduct.data.records import Records
from viaduct.errors import BadValue
from viaduct.models import sources
from viaduct.recipes import Recipe
from viaduct.training.recipe_code import call_recipe_part


def build_model(recipe: Recipe) -> nn.Module:
    """Return a recipe's network with initial weights: by its name in `models.build`, or by the user's function."""
    if isinstance(recipe.model, str):
        return models.build(recipe.model, classes=recipe.data.classes, **collect_network_options(recipe))
    built: nn.Module = call_recipe_part("model", recipe.model, recipe.data.classes)
    return built


def collect_network_options(recipe: Recipe) -> dict[str, Any]:
    """Return the keyword arguments that a named network is built with, besides its classes."""
    options = {} if recipe.network is None else dict(vars(recipe.network))
    family = None if sources.is_foreign(recipe.model) else models.find_family(str(recipe.model))
    if options and (family is None or not options.keys() <= set(models.list_options(str(recipe.model)))):
        message = f"network holds settings of {type(recipe.network).__name__}, which {recipe.model!r} does not have."
        raise BadValue(message, "Take it out: --set network=none.")
    return {**options, "image": recipe.data.size} if family is not None and family.needs_image_size else options


def apply_source_settings(recipe: Recipe, *, keep_size: bool = False) -> Recipe:
    """Replace `data.preprocess="source"` by the preprocessing of the network's own package or family.

    The image size becomes that of the network, too, unless `keep_size` is set.
    """
    data = recipe.data
    if not isinstance(data, Records) or data.preprocess != "source":
        return recipe
    if isinstance(recipe.model, str) and not sources.is_foreign(recipe.model):
        family = models.find_family(recipe.model)
        size = data.size if keep_size else family.input_size
        return replace(recipe, data=replace(data, preprocess=family.preprocess, size=size))
    settings = sources.read_input(recipe.model) if isinstance(recipe.model, str) else sources.InputSettings()
    views = PillowViews(settings.interpolation, settings.crop_share, settings.mean, settings.deviation)
    size = data.size if keep_size else settings.size
    return replace(recipe, data=replace(data, preprocess=views.name, size=size))


def describe_model_file(recipe: Recipe) -> dict[str, str] | None:
    """Return path and SHA-256 of the file that defines a network `package.module:function`.

    Return None for a network that is not given in this form, or whose function has no source file.
    """
    if not isinstance(recipe.model, str) or not sources.is_function(recipe.model):
        return None
    file = inspect.getsourcefile(inspect.unwrap(sources.find_function(recipe.model)))
    if file is None or not Path(file).is_file():
        return None
    return {"file": str(Path(file).resolve()), "sha256": hashlib.sha256(Path(file).read_bytes()).hexdigest()}


def find_changed_model_file(record: Mapping[str, Any], recipe: Recipe) -> Path | None:
    """Return the file of the network's function if its checksum differs from that in a run's recipe.json, else None."""
    before, now = record.get("model_file"), describe_model_file(recipe)
    if not isinstance(before, dict) or now is None or before.get("sha256") == now["sha256"]:
        return None
    return Path(now["file"])


def place_model(model: nn.Module, device: torch.device) -> nn.Module:
    """Move a model to its device, in the memory format channels_last, which is usually faster for convolutions."""
    placed: nn.Module = cast(Any, model).to(device, memory_format=torch.channels_last)
    return placed


def describe_model(recipe: Recipe) -> str:
    """Return the network's name for checkpoints."""
    return recipe.model if isinstance(recipe.model, str) else getattr(recipe.model, "__qualname__", "own model")
