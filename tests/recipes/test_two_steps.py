"""Every shipped recipe really trains: two steps of its own network, optimizer and loss on few and small images."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from training.tiny_runs import Recorder, change_part, copy_weights
from viaduct import devices
from viaduct.data.source import Dataset
from viaduct.recipes import Amoebanet, ImageSet, Precision, Recipe, Records, Split, load, names
from viaduct.training.loop import Training
from viaduct.training.networks import apply_source_settings
from viaduct.training.rundir import RunDir

BATCH = 4
LARGE = {"resnet101_imagenet", "resnet152_imagenet"}  # the same recipe as resnet50_imagenet, for more seconds


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def shrunken(name: str) -> Recipe:
    """The recipe with images as small and batches as few as its network bears."""
    recipe = load(name).recipe
    small = recipe.model == "amoebanet_d"
    recipe = change_part(recipe, "data", global_batch=BATCH, eval_batch=0, size=72 if small else 33)
    recipe = replace(recipe, network=Amoebanet(cells=3, filters=32)) if small else recipe
    recipe = apply_source_settings(recipe, keep_size=True)
    return replace(change_part(recipe, "log", every_steps=1), steps=100, precision=Precision("fp32"))


def images(recipe: Recipe) -> Dataset:
    if isinstance(recipe.data, Records):
        return recipe.data.open_images(Path("synthetic"))
    rng = np.random.default_rng(1)
    noise = rng.integers(0, 256, (3 * BATCH, 32, 32, 3), dtype=np.uint8)
    split = Split(noise, np.arange(3 * BATCH, dtype=np.int64) % 10)
    return ImageSet(split, split, tuple("0123456789"))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LARGE else []) for name in names()]
)
@pytest.mark.lengthy
def test_a_recipe_takes_two_steps(name: str, tmp_path: Path) -> None:
    recipe, recorder = shrunken(name), Recorder()
    device, device_name = devices.pick("cpu")
    training = Training(recipe, RunDir(tmp_path), images(recipe), device, device_name, [recorder])
    training.computation.train(True)
    before = copy_weights(training)
    with training.train_batches as batches:
        epoch = batches.epoch(0)
        for _ in range(2):
            training.advance(epoch)
    rng = math.log(recipe.data.classes)
    losses = [loss for record in recorder.logs for loss in record.losses]
    assert len(losses) == 2
    assert 0.5 * rng < losses[0] < 10 * rng  # a fresh network knows little
    assert math.isfinite(losses[1])
    moved = [key for key, tensor in copy_weights(training).items() if not torch.equal(tensor, before[key])]
    assert "head.weight" in moved
    assert len(moved) > 0.6 * len(before)  # early in a warm-up some weights move by less than fp32 can tell
