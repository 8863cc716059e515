"""Augmentation and normalisation of whole batches, against one image at a time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from viaduct.data.augment import Normalise, PlanRow, draw_training_plan
from viaduct.data.batches import Batches
from viaduct.data.cifar10 import Cifar10
from viaduct.data.source import Arrays, Images, ImageSet, Split

from .naive_pipeline import evaluation_image, training_image


def fail_if_called(path: Path | None) -> ImageSet:
    raise AssertionError("the tests bring their own arrays")


PLAIN = Arrays(global_batch=16, size=12, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.1), make=fail_if_called)


def first_training_batch(split: Split, images: Images, device: torch.device, limit: int = 4 << 30) -> Tensor:
    with Batches(split, images, device=device, train=True, seed=3, resident_limit=limit) as batches:
        return next(iter(batches.epoch(2))).images


def expected_batch(split: Split, images: Images) -> np.ndarray:
    positions = range(images.global_batch)
    made = [training_image(split, images, seed=3, epoch=2, position=position) for position in positions]
    return np.stack(made).transpose(0, 3, 1, 2)


@pytest.mark.parametrize("limit", [4 << 30, 0], ids=["resident", "streamed"])
@pytest.mark.parametrize("normalise", ["mean_std", "per_image"])
@pytest.mark.parametrize(
    ("pad", "flip", "cutout", "size"),
    [
        (0, False, 0, 12),
        (2, False, 0, 12),
        (0, True, 0, 12),
        (4, True, 0, 12),
        (2, True, 5, 12),
        (2, True, 4, 23),
    ],
)
def test_a_training_batch_equals_the_naive_pipeline(
    split: Split,
    device: torch.device,
    pad: int,
    flip: bool,
    cutout: int,
    size: int,
    normalise: str,
    limit: int,
) -> None:
    images = replace(PLAIN, pad=pad, flip=flip, cutout=cutout, size=size, normalise=normalise)
    made = first_training_batch(split, images, device, limit)
    np.testing.assert_allclose(made.cpu().numpy(), expected_batch(split, images), rtol=1e-5, atol=2e-5)


def test_the_books_pipeline_resizes_before_it_normalises(device: torch.device) -> None:
    """Pad 4, crop, mirror, resize to 224, x/255, subtract, divide; we normalise before we resize."""
    images = np.random.default_rng(1).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    split = Split(images, np.array([3, 8], dtype=np.int64))
    book = Cifar10(global_batch=2, size=224, pad=4, flip=True)
    identity = replace(book, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    resized = expected_batch(split, identity)
    by_channel = (1, 3, 1, 1)
    expected = (resized - np.reshape(book.mean, by_channel)) / np.reshape(book.std, by_channel)
    made = first_training_batch(split, book, device)
    np.testing.assert_allclose(made.cpu().numpy(), expected, rtol=1e-4, atol=1e-4)


def test_evaluation_is_not_augmented(split: Split, device: torch.device) -> None:
    images = replace(PLAIN, pad=4, flip=True, cutout=5, size=15)
    with Batches(split, images, device=device, train=False, seed=0) as batches:
        first = next(iter(batches.epoch(0)))
    expected = np.stack([evaluation_image(split, images, index) for index in range(16)]).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(first.images.cpu().numpy(), expected, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("size", [12, 20])
def test_batches_are_float32_and_channels_last(split: Split, device: torch.device, size: int) -> None:
    made = first_training_batch(split, replace(PLAIN, pad=1, cutout=3, size=size), device)
    assert made.dtype == torch.float32
    assert made.shape == (16, 3, size, size)
    assert made.is_contiguous(memory_format=torch.channels_last)


def test_every_offset_and_both_directions_are_drawn() -> None:
    images = replace(PLAIN, pad=2, flip=True, cutout=4)
    plan = draw_training_plan(images, 12, 10, seed=0, epoch=0, count=5000)
    mirrored = plan[PlanRow.STRIDE] < 0
    rows, columns = np.divmod(plan[PlanRow.CORNER] - 9 * mirrored, 10 + 2 * 2)
    assert np.unique(rows).tolist() == [0, 1, 2, 3, 4]
    assert np.unique(columns).tolist() == [0, 1, 2, 3, 4]
    assert 0.45 < mirrored.mean() < 0.55
    assert (plan[PlanRow.HOLE_TOP].min(), plan[PlanRow.HOLE_TOP].max()) == (-2, 9)
    assert (plan[PlanRow.HOLE_LEFT].min(), plan[PlanRow.HOLE_LEFT].max()) == (-2, 7)


def test_switching_on_cutout_does_not_change_the_crops() -> None:
    without = draw_training_plan(replace(PLAIN, pad=2, flip=True), 12, 10, seed=0, epoch=0, count=50)
    with_it = draw_training_plan(replace(PLAIN, pad=2, flip=True, cutout=4), 12, 10, seed=0, epoch=0, count=50)
    assert np.array_equal(without[: PlanRow.HOLE_TOP], with_it[: PlanRow.HOLE_TOP])


@pytest.fixture
def images() -> np.ndarray:
    """Noise, one flat grey, and one so nearly flat that the floor of the deviation decides."""
    made = np.random.default_rng(2).integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)
    made[4] = 77
    made[5] = 200
    made[5, 0, 0, 0] = 201
    return made


def standardise(images: np.ndarray, device: torch.device) -> np.ndarray:
    normalise = Normalise(replace(PLAIN, normalise="per_image"), device)
    return normalise(torch.from_numpy(images).to(device)).permute(0, 2, 3, 1).cpu().numpy()


def test_per_image_standardisation_follows_the_formula(images: np.ndarray, device: torch.device) -> None:
    wide = images.astype(np.float64)
    mean = wide.mean((1, 2, 3), keepdims=True)
    deviation = np.maximum(wide.std((1, 2, 3), keepdims=True), 1 / np.sqrt(3072))
    np.testing.assert_allclose(standardise(images, device), (wide - mean) / deviation, rtol=1e-5, atol=1e-3)


def test_a_flat_image_becomes_zero_not_infinite(images: np.ndarray, device: torch.device) -> None:
    assert (standardise(images, device)[4] == 0).all()


def test_per_image_standardisation_equals_tensorflows(images: np.ndarray, device: torch.device) -> None:
    tensorflow = pytest.importorskip("tensorflow", reason="compares with TensorFlow: pip install 'viaduct[tf]'")
    theirs = tensorflow.image.per_image_standardization(images[:5]).numpy()
    np.testing.assert_allclose(standardise(images[:5], device), theirs, rtol=1e-4, atol=1e-4)
