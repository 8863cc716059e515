"""Detection of a network's number of outputs from its weights, for recipes that may state another number."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import torch

from viaduct.recipes import LoadedRecipe, Recipe
from viaduct.training.networks import build_model
from viaduct.weights.stored import StoredWeights, open_weights


def match_outputs(path: Path, loaded: LoadedRecipe) -> tuple[LoadedRecipe, str]:
    """Return the recipe with the number of classes in the weights, and a note if this differs from the recipe's.

    The recipe is returned unchanged if its data source has no settable field `classes`.
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


def count_outputs(stored: StoredWeights, recipe: Recipe) -> int | None:
    """Return the number of outputs of the weights' network; None if unknown."""
    if stored.metadata.classes is not None:
        return stored.metadata.classes
    for model, classes, _ in stored.find_likely_models():
        if model == recipe.model:
            return classes
    return count_by_shapes(stored, recipe)


def count_by_shapes(stored: StoredWeights, recipe: Recipe) -> int | None:
    """Return the number of outputs if shapes differ from the recipe's network in the number of classes only.

    None if nothing differs, or anything else does. Tensors that the weights lack are not considered.
    """
    with torch.device("meta"):
        tensors = build_model(recipe).state_dict()
    outputs = set()
    for name, tensor in tensors.items():
        shape, stored_shape = tuple(tensor.shape), stored.shapes.get(name)
        if stored_shape is None or stored_shape == shape:
            continue
        if len(stored_shape) != len(shape) or shape[:1] != (recipe.data.classes,) or stored_shape[1:] != shape[1:]:
            return None  # another network; loading the weights reports it
        outputs.add(stored_shape[0])
    return outputs.pop() if len(outputs) == 1 else None
