"""The built-in images: deterministic, different in both splits, and told apart by shape only."""

from __future__ import annotations

import time

import numpy as np
import pytest

from viaduct.data.shapes import NAMES, Shapes
from viaduct.data.source import ImageSet, Split

SHAPES = Shapes(global_batch=64, size=32, train_images=3000, validation_images=1000)


@pytest.fixture(scope="module")
def drawn() -> ImageSet:
    return SHAPES.load()


def fit_and_score(features: np.ndarray, labels: np.ndarray, seen: np.ndarray, answers: np.ndarray) -> float:
    """Accuracy of a ridge regression onto one-hot labels; the penalty that does best is taken."""
    middle, spread = features.mean(0), features.std(0) + 1e-6
    features, seen = (features - middle) / spread, (seen - middle) / spread
    features, seen = (np.concatenate([part, np.ones((len(part), 1))], axis=1) for part in (features, seen))
    square, target = features.T @ features, features.T @ np.eye(10)[labels]
    scores = []
    for penalty in (1e-2, 1e1, 1e3, 1e4):
        weights = np.linalg.solve(square + penalty * np.eye(len(square)), target)
        scores.append(float(((seen @ weights).argmax(1) == answers).mean()))
    return max(scores)


def score(features, drawn: ImageSet) -> float:  # type: ignore[no-untyped-def]
    train, validation = drawn.train, drawn.validation
    return fit_and_score(features(train), train.labels, features(validation), validation.labels)


def mean_colour(split: Split) -> np.ndarray:
    return split.images.mean((1, 2)) / 255


def mean_and_contrast(split: Split) -> np.ndarray:
    both = np.concatenate([mean_colour(split), split.images.std((1, 2)) / 255], axis=1)
    return np.concatenate([both, both**2, both[:, :3] * both[:, 3:]], axis=1)


def pixels(split: Split) -> np.ndarray:
    return split.images.reshape(len(split), -1) / 255


def test_mean_colour_does_not_tell_the_class(drawn: ImageSet) -> None:
    assert score(mean_colour, drawn) < 0.20


def test_mean_and_contrast_do_not_tell_the_class(drawn: ImageSet) -> None:
    assert score(mean_and_contrast, drawn) < 0.20


@pytest.mark.lengthy
def test_a_linear_classifier_on_pixels_is_not_enough(drawn: ImageSet) -> None:
    assert score(pixels, drawn) < 0.50


def test_drawing_again_gives_the_same_images(drawn: ImageSet) -> None:
    again = SHAPES.load()
    assert np.array_equal(again.train.images, drawn.train.images)
    assert np.array_equal(again.validation.images, drawn.validation.images)


def test_golden_images(drawn: ImageSet) -> None:
    """Measured results rest on these images; brightness instead of bytes, since processors round differently."""
    train, validation = (part.images[:5].mean((1, 2, 3)) for part in (drawn.train, drawn.validation))
    assert train == pytest.approx([65.6, 83.2, 155.3, 84.2, 168.9], abs=0.1)
    assert validation == pytest.approx([194.7, 148.1, 180.8, 154.2, 172.7], abs=0.1)


@pytest.mark.parametrize("size", [32, 19])
def test_an_image_does_not_depend_on_how_many_are_drawn(size: int) -> None:
    few = Shapes(global_batch=1, size=size, train_images=7, validation_images=325).load()
    many = Shapes(global_batch=1, size=size, train_images=700, validation_images=701).load()
    assert np.array_equal(few.train.images, many.train.images[:7])
    assert np.array_equal(few.validation.images, many.validation.images[:325])


def test_no_image_is_drawn_twice_in_or_across_splits(drawn: ImageSet) -> None:
    both = np.concatenate([drawn.train.images, drawn.validation.images])
    assert len({image.tobytes() for image in both}) == 4000


def test_another_draw_seed_draws_other_images(drawn: ImageSet) -> None:
    other = Shapes(global_batch=64, size=32, train_images=100, draw_seed=1).load()
    assert not (other.train.images == drawn.train.images[:100]).all(axis=(1, 2, 3)).any()


def test_classes_are_balanced_and_named(drawn: ImageSet) -> None:
    assert drawn.names == NAMES
    assert len(set(NAMES)) == 10
    assert np.bincount(drawn.train.labels).tolist() == [300] * 10


@pytest.mark.parametrize("size", [16, 33, 64])
def test_any_size_shows_the_same_scene(size: int, drawn: ImageSet) -> None:
    """Only the noise and the softness of the edges differ: coarse images agree."""
    other = Shapes(global_batch=1, size=size, train_images=50, validation_images=1).load().train.images
    assert other.shape == (50, size, size, 3)
    coarse, expected = (images.mean((1, 2)) for images in (other, drawn.train.images[:50]))
    assert np.abs(coarse - expected).max() < 4


def test_mean_and_std_of_the_recipe_are_those_of_the_images(drawn: ImageSet) -> None:
    scaled = drawn.train.images / 255
    assert scaled.mean((0, 1, 2)) == pytest.approx(SHAPES.mean, abs=0.02)
    assert scaled.std((0, 1, 2)) == pytest.approx(SHAPES.std, abs=0.02)


def test_drawing_is_quick() -> None:
    started = time.process_time()
    Shapes(global_batch=1, size=32, train_images=4096, validation_images=1).load()
    assert time.process_time() - started < 5  # 0.2 s alone on one core; the tests may have company
