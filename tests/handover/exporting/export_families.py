"""Exports networks of one family after the other, each checked; run in a process of its own.

python export_families.py FORMAT OUT FLAGS.json       prints a JSON list: name, largest difference, equal top-1, images
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import simplejpeg
import torch
from safetensors.torch import save_file
from torch import nn

from viaduct import models, recipes
from viaduct.handover.classifier import Classifier
from viaduct.handover.exporting.checking import prepare
from viaduct.handover.exporting.export import export
from viaduct.handover.exporting.request import SUFFIXES, ExportRequest

SIZE = 72  # even and odd feature maps: SAME padding is lopsided in some layers and not in others
SMALL = {"cells": 3, "filters": 16, "aux": False}
FAMILIES: list[tuple[str, str, dict[str, Any]]] = [  # network, a recipe with its preprocessing, options
    ("resnet18_v1", "resnet18_imagenet", {}),
    ("resnet18_v2", "resnet50_imagenet", {}),
    ("resnet20_cifar", "resnet56_cifar10", {}),
    ("resnet20_cifar_v2", "resnet56_cifar10", {}),
    ("resnet50_stem3", "resnet50_cifar10_modern", {}),
    ("resnet50_book", "resnet50_cifar10", {}),
    ("resnet50_v15", "resnet50_v15_imagenet", {}),
    ("resnext50", "resnext50_imagenet", {}),
    ("amoebanet_d", "amoebanet_d_imagenet", SMALL),
]


def write_photos(folder: Path, count: int = 6) -> None:
    """Write JPEG images of different sizes."""
    folder.mkdir()
    generator = np.random.default_rng(0)
    for number in range(count):
        height, width = generator.integers(40, 300, 2)
        rows, columns = np.mgrid[:height, :width]
        waves = [127 + 100 * np.sin(columns / (5 + number) + channel + rows / (9 + channel)) for channel in range(3)]
        noisy = np.stack(waves, -1) + generator.normal(0, 20, (height, width, 3))
        pixels = np.ascontiguousarray(noisy.clip(0, 255).astype(np.uint8))
        (folder / f"{number}.jpg").write_bytes(simplejpeg.encode_jpeg(pixels, quality=90, colorsubsampling="420"))


def build_classifier(name: str, recipe_name: str, options: dict[str, Any], photos: Path) -> Classifier:
    """Return a network with settled norms whose outputs for the photos are far from even and from certain."""
    torch.manual_seed(0)
    network = models.build(name, classes=10, **options)
    recipe = recipes.load(recipe_name).recipe
    recipe = replace(recipe, data=replace(recipe.data, size=SIZE, classes=10))
    labels = tuple(f"class {number}" for number in range(10))
    made = Classifier(network, recipe, recipe_name, labels, None, photos, None, None, False, None)
    inputs = torch.from_numpy(np.stack([prepare(made, file.read_bytes()) for file in sorted(photos.iterdir())]))
    with torch.no_grad():
        for norm in network.modules():
            if isinstance(norm, nn.BatchNorm2d):
                norm.momentum = None  # type: ignore[assignment]  # the plain mean of what it sees
                norm.weight.uniform_(0.5, 1.2)
                norm.bias.uniform_(-0.2, 0.2)
        network.train()(inputs)
        logits = network.eval()(inputs)
        head: Any = network.head
        head.weight.mul_(2 / logits.std())
    network.requires_grad_(False)
    weights = photos.parent / f"{name}.weights.safetensors"
    save_file({key: tensor.contiguous() for key, tensor in network.state_dict().items()}, weights)
    return replace(made, weights=weights)


def main(form: Any, out: Path, flags: dict[str, Any]) -> None:
    write_photos(out / "photos")
    rows = []
    for name, recipe, options in FAMILIES:
        classifier = build_classifier(name, recipe, options, out / "photos")
        request = ExportRequest(form=form, out=out / f"{name}{SUFFIXES[form]}", check_images=out / "photos", **flags)
        check_result = export(classifier, request).check_result
        assert check_result is not None
        rows.append((name, check_result.largest_difference, check_result.same_top1, check_result.images))
    print(json.dumps(rows))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))
