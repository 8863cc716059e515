"""Preprocessing inside a graph against the preprocessing of evaluation, on decoded pixels."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

from viaduct import recipes
from viaduct.data import preprocess, references
from viaduct.data.cifar10 import Cifar10
from viaduct.data.png import encode_png
from viaduct.data.records import Records
from viaduct.data.source import Images
from viaduct.handover.classifier import Classifier
from viaduct.handover.exporting.card import describe_preprocessing
from viaduct.handover.exporting.pixels import build_preprocessing
from viaduct.handover.exporting.request import ExportRequest
from viaduct.handover.preparing import prepare_encoded

Normalise = Literal["mean_std", "per_image"]
SIZES = ((1, 1), (1, 300), (7, 5), (33, 32), (224, 224), (375, 500), (500, 333), (31, 640))


@pytest.mark.parametrize("name", references.names())
@pytest.mark.parametrize("size", [6, 32, 224])
def test_pixels_of_any_size_become_the_input_of_evaluation(name: str, size: int) -> None:
    source = Records(global_batch=1, size=size, preprocess=name)  # type: ignore[arg-type]
    prepare, pixels = partial(prepare_encoded, source, None), build_preprocessing(source, None)
    _, scale = preprocess.get_normalisation(name)
    for number, shape in enumerate(SIZES):
        image = np.random.default_rng(number).integers(0, 256, (*shape, 3), dtype=np.uint8)
        expected = prepare(encode_png(image))
        found = pixels(torch.from_numpy(image)[None])[0].permute(1, 2, 0).numpy()
        assert np.abs(found - expected).max() <= 1e-4 * scale.max(), (name, size, shape)  # of 255 grey levels


@pytest.mark.parametrize("normalise", ["mean_std", "per_image"])
@pytest.mark.parametrize("size", [32, 64])
def test_images_in_arrays_become_the_input_of_evaluation(normalise: Normalise, size: int) -> None:
    source: Images = Cifar10(global_batch=1, size=size, normalise=normalise)
    images = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    images[2] = 77  # no variance at all
    prepare, pixels = partial(prepare_encoded, source, (32, 32)), build_preprocessing(source, (32, 32))
    found = pixels(torch.from_numpy(images)).permute(0, 2, 3, 1).numpy()
    for image, seen in zip(images, found, strict=True):
        assert np.abs(seen - prepare(encode_png(image))).max() <= 1e-5


@pytest.mark.parametrize(
    ("recipe", "name", "mean", "message"),
    [
        ("resnet18_imagenet", "official", 123.68, "shorter side has 256 pixels"),
        ("resnet50_v15_imagenet", "v15", 123.68, "shorter side has 256 pixels"),
        ("resnext50_imagenet", "resnext", 121.0, "middle 80 %"),
        ("amoebanet_d_imagenet", "amoebanet", 127.5, "middle 87.5 %"),
    ],
)
def test_a_card_gives_the_references_numbers(recipe: str, name: str, mean: float, message: str) -> None:
    chosen = recipes.load(recipe).recipe
    chosen = replace(chosen, data=replace(chosen.data, size=224))
    classifier = Classifier(torch.nn.Identity(), chosen, recipe, (), None, Path(), None, None, False, None)
    inside = describe_preprocessing(classifier, ExportRequest(form="pt2", out=Path("m.pt2"), input="pixels"))
    assert (inside["name"], inside["mean"][0], inside["inside_the_graph"]) == (name, mean, True)
    assert message in inside["words"]
    outside = describe_preprocessing(classifier, ExportRequest(form="pt2", out=Path("m.pt2"), input="tensor"))
    assert outside["inside_the_graph"] is False
