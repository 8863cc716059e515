"""Noise instead of images, for every kind of recipe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from viaduct.data.records import Records
from viaduct.data.source import Source
from viaduct.data.synthetic import EVALUATED_BATCHES, SYNTHETIC, get_stored_data_path
from viaduct.recipes import load, names
from viaduct.training.networks import apply_source_settings

RECORDS = Records(global_batch=8, size=32, classes=4)
CPU = torch.device("cpu")


@pytest.mark.parametrize("name", names())
def test_every_recipe_has_noise_of_its_own_size(name: str) -> None:
    recipe = apply_source_settings(load(name).recipe)
    source: Source = replace(recipe.data, global_batch=4, eval_batch=6)
    images = source.open_images(SYNTHETIC)
    with source.open_batches(images.train, device=CPU, train=True, seed=1) as made:
        batch = next(iter(made.epoch(0)))
    assert batch.images.shape == (4, 3, source.size, source.size)
    assert batch.images.mean().abs() < 2 * batch.images.std()  # normalised
    assert len(images.validation) == EVALUATED_BATCHES * 6
    assert images.train.read_image(3).shape == (source.size, source.size, 3)


def test_labels_are_the_same_every_time() -> None:
    assert np.array_equal(RECORDS.open_images(SYNTHETIC).train.labels, RECORDS.open_images(SYNTHETIC).train.labels)


def test_a_run_says_where_its_data_are(tmp_path: Path) -> None:
    assert get_stored_data_path({}) is None
    assert get_stored_data_path({"data": None}) is None
    assert get_stored_data_path({"data": "synthetic"}) == SYNTHETIC
    assert get_stored_data_path({"data": str(tmp_path / "synthetic")}) == SYNTHETIC  # as older versions stored it
    (tmp_path / "synthetic").mkdir()
    assert get_stored_data_path({"data": str(tmp_path / "synthetic")}) == tmp_path / "synthetic"
