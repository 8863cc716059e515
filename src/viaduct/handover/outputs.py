"""The number of a network's outputs, taken from its weights where nobody gave it."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import torch

from viaduct.recipes import Loaded, Recipe
from viaduct.training.networks import build_model
from viaduct.weights.stored import Stored, open_weights


def match_outputs(path: Path, loaded: Loaded) -> tuple[Loaded, str]:
    """Return the recipe with as many classes as the weights have, and a note where that changed it.

    Sources whose classes are fixed, such as CIFAR-10, stay as they are: loading says that the weights do not fit.
    """
    data = loaded.recipe.data
    if not any(field.name == "classes" and field.init for field in fields(data)):
        return loaded, ""
    with open_weights(path) as stored:
        outputs = count_outputs(stored, loaded.recipe)
    if outputs is None or outputs == data.classes:
        return loaded, ""
    note = f"The weights have {outputs:,} outputs; the recipe's {data.classes:,} are not used."
    changed = replace(loaded.recipe, data=replace(data, classes=outputs))
    return replace(loaded, recipe=changed), note


def count_outputs(stored: Stored, recipe: Recipe) -> int | None:
    """Return the outputs that the weights are for; None where they do not tell."""
    if stored.facts.classes is not None:
        return stored.facts.classes
    for model, classes, _ in stored.likely_models():
        if model == recipe.model:
            return classes
    return count_by_shapes(stored, recipe)


def count_by_shapes(stored: Stored, recipe: Recipe) -> int | None:
    """Compare shapes with the recipe's network: the outputs are the axis in which its last tensors differ alone."""
    with torch.device("meta"):
        own = build_model(recipe).state_dict()
    found = set()
    for name, value in own.items():
        shape, there = tuple(value.shape), stored.shapes.get(name)
        if there is None or there == shape:
            continue
        if len(there) != len(shape) or shape[:1] != (recipe.data.classes,) or there[1:] != shape[1:]:
            return None  # another network: loading names the tensors
        found.add(there[0])
    return found.pop() if len(found) == 1 else None
