"""Trained classifiers: a network with its preprocessing and the names of its outputs.

    classifier = open_run(Path("runs/try1"))
    inputs = torch.from_numpy(classifier.prepare(encoded)).permute(2, 0, 1)[None]
    classifier.labels[int(classifier.network(inputs).argmax())]

`encoded` is the content of an image file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from viaduct.data.source import Images, Pixels
from viaduct.data.synthetic import SYNTHETIC, get_stored_data_path
from viaduct.errors import BadRun
from viaduct.handover.labels import find_labels
from viaduct.handover.preparing import Floats, prepare_decoded, prepare_encoded
from viaduct.recipes import LoadedRecipe, Recipe
from viaduct.run_files import compute_sha256
from viaduct.training.checkpoint import EMA_FILE, MODEL_FILE
from viaduct.training.distributed import ALONE
from viaduct.training.networks import build_model, describe_model, place_model
from viaduct.training.rundir import RunDir
from viaduct.training.trained_weights import (
    Weights,
    WeightsFile,
    choose_weights,
    find_weights,
    has_averages,
    load_weights,
)
from viaduct.weights.stored import open_weights

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Classifier:
    """Trained network in evaluation mode, in float32 on the CPU, with preprocessing and labels."""

    network: nn.Module
    recipe: Recipe
    recipe_name: str
    labels: tuple[str, ...]  # one for each output
    image_shape: tuple[int, int] | None  # height and width of the training images, if the run recorded them
    weights: Path  # checkpoint or file
    run: Path | None  # None: the weights are not from a run
    step: int | None  # training step of the weights; None: not known
    averaged: bool  # True: the weights are moving averages (ema)
    accuracy: dict[str, Any] | None  # evaluation in the checkpoint's manifest (top1, …); None: there is none
    notes: tuple[str, ...] = ()  # for the user

    @property
    def name(self) -> str:
        """Name of the network, or of the user's function that builds it."""
        return describe_model(self.recipe)

    @property
    def size(self) -> int:
        """Side of the square input."""
        return self.recipe.data.size

    @property
    def fixed_image_shape(self) -> tuple[int, int] | None:
        """Height and width of the images if the recipe's are in arrays, all of one size; None for other recipes."""
        source = self.recipe.data
        if not isinstance(source, Images):
            return None
        return self.image_shape or source.image_shape or (self.size, self.size)

    def prepare(self, encoded: bytes) -> Floats:
        """Convert an encoded image to the network's input, float32 size x size x 3."""
        return prepare_encoded(self.recipe.data, self.image_shape, encoded)

    def prepare_pixels(self, pixels: Pixels) -> Floats:
        """Convert a decoded image, uint8 height x width x 3, to the network's input."""
        return prepare_decoded(self.recipe.data, self.image_shape, pixels)

    @cached_property
    def weights_sha256(self) -> dict[str, str]:
        """SHA-256 of each weights file, by its path relative to the folder of the run or file."""
        base = self.weights.parent if self.run is None else self.run.resolve().parent
        files = sorted(list_weights_files(self.weights, self.averaged))
        try:
            return {str(file.resolve().relative_to(base.resolve())): compute_sha256(file) for file in files}
        except OSError as error:
            raise BadRun(f"{self.weights} has changed since it was read: {error}.", "Repeat the command.") from None


def list_weights_files(path: Path, averaged: bool) -> list[Path]:
    """Return the files of weights at a path: a run's checkpoint, a file, or the prefix of a TensorFlow checkpoint."""
    if path.is_dir():
        return [path / (EMA_FILE if averaged else MODEL_FILE)]
    if path.is_file():
        return [path]
    index, data_files = f"{path.name}.index", f"{path.name}.data-"
    return [file for file in path.parent.iterdir() if file.name == index or file.name.startswith(data_files)]


def open_run(
    path: Path, *, step: int | None = None, file: Path | None = None, labels: Path | None = None
) -> Classifier:
    """Open the newest intact checkpoint of the run in the folder `path`, or its checkpoint of `step`.

    `file` is a recipe file that replaces the run's own copy; `labels` is a file with names of the outputs.
    """
    run = RunDir(path)
    record, loaded = run.read_recipe_json(), run.load_recipe(file)
    (saved,) = choose_weights(run, loaded.recipe, step, every=False)
    data = get_stored_data_path(record)
    if data == SYNTHETIC or (data is not None and not data.exists()):
        data = None
    shape = record.get("image_shape")
    image_shape = (int(shape[0]), int(shape[1])) if shape and len(shape) == 2 else None
    return load_classifier(saved, loaded, run=path, data=data, labels=labels, image_shape=image_shape, ema=None)


def open_weights_file(
    path: Path, loaded: LoadedRecipe, *, ema: bool | None = None, labels: Path | None = None
) -> Classifier:
    """Open weights that are not from a run; the recipe defines the network and the preprocessing.

    `ema` selects the averaged weights; None selects them if the recipe has ema and the file has them.
    """
    (weights,) = find_weights(path, every=False)
    if ema is None and not loaded.recipe.ema:
        ema = False
    return load_classifier(weights, loaded, run=None, data=None, labels=labels, image_shape=None, ema=ema)


def load_classifier(
    saved: Weights,
    loaded: LoadedRecipe,
    *,
    run: Path | None,
    data: Path | None,
    labels: Path | None,
    image_shape: tuple[int, int] | None,
    ema: bool | None,
) -> Classifier:
    """Build the network, load these weights, and find the names of the outputs.

    `data` and `labels` are paths that may have these names. `ema` has an effect only on weights that are not of a run.
    """
    recipe = loaded.recipe
    names, notes = find_labels(recipe.data, run, data, labels)
    network = place_model(build_model(recipe), CPU)
    step, _ = load_weights(saved, recipe, network, ALONE, ema if run is None else None)
    network.eval().requires_grad_(False)
    if not all(bool(torch.isfinite(tensor).all()) for tensor in network.state_dict().values()):
        raise BadRun(f"{saved.path}: the weights have values that are not finite.", "Choose another checkpoint.")
    accuracy = None if isinstance(saved, WeightsFile) else saved.read_manifest().get("evaluation")
    return Classifier(
        network=network,
        recipe=recipe,
        recipe_name=loaded.name,
        labels=names,
        image_shape=image_shape,
        weights=saved.path,
        run=run,
        step=step,
        averaged=is_averaged(saved, recipe, run) if ema is None else ema,
        accuracy=accuracy,
        notes=tuple(notes),
    )


def is_averaged(saved: Weights, recipe: Recipe, run: Path | None) -> bool:
    """Return True if averages were loaded: every run of a recipe with ema has them, other weights may have them."""
    if not recipe.ema or run is not None:
        return bool(recipe.ema)
    with open_weights(saved.path) as stored:
        return has_averages(stored)
