"""Synthetic images for tf.keras.datasets that can neither be found nor downloaded."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from viaduct.rehearsal.fake_data import print_note
from viaduct.rehearsal.wrapping import wrap

TRAINING_IMAGES, TEST_IMAGES = 6000, 1000
# By name: the shape of an image, the shape of a label, the number of classes.
KNOWN_SETS: dict[str, tuple[tuple[int, ...], tuple[int, ...], int]] = {
    "mnist": ((28, 28), (), 10),
    "fashion_mnist": ((28, 28), (), 10),
    "cifar10": ((32, 32, 3), (1,), 10),
    "cifar100": ((32, 32, 3), (1,), 100),
}
Arrays = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


def install() -> None:
    """Wrap the datasets' load_data; call this after the stand-in is installed and before the script starts."""
    import tensorflow as tf

    for name in KNOWN_SETS:
        wrap(getattr(tf.keras.datasets, name), "load_data")(functools.partial(load_data, name=name))


def load_data(plain: Callable[..., Any], *args: Any, name: str, **kwargs: Any) -> Any:
    """Return a dataset from its own load_data, `plain`, or synthetic images if the download fails."""
    try:
        return plain(*args, **kwargs)
    except Exception as error:  # Keras raises no other class where a download fails
        if "URL fetch failure" not in str(error):
            raise
        counts = f"{TRAINING_IMAGES} training and {TEST_IMAGES} test images"
        print_note(f"keras.datasets.{name} cannot be downloaded; {counts} are made up.")
        return make_set(name, TRAINING_IMAGES, seed=0), make_set(name, TEST_IMAGES, seed=1)


def make_set(name: str, length: int, seed: int) -> Arrays:
    """Return random images and labels with the shapes of a dataset."""
    image, label, classes = KNOWN_SETS[name]
    random = np.random.RandomState(seed)
    images = random.randint(0, 256, (length, *image)).astype(np.uint8)
    return images, random.randint(0, classes, (length, *label)).astype(np.uint8)
