"""The module tensorflow.examples.tutorials.mnist.input_data: `read_data_sets(…, one_hot=True).train.next_batch(64)`.

The four files are read from the folder and never downloaded. With --fake-data missing ones are made up.
"""

from __future__ import annotations

import collections
import gzip
import os
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from viaduct.rehearsal.fake_data import print_note

Datasets = collections.namedtuple("Datasets", ["train", "validation", "test"])
FILES = {
    "train": ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
    "test": ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"),
}
MADE_UP_IMAGES = {"train": 6000, "test": 1000}  # number of images made up for missing files
makes_up_missing = False  # `stage.py` sets it with --fake-data


class DataSet:
    """Images and labels in batches, by default shuffled before each pass. `fake_data` and `one_hot` have no effect."""

    def __init__(
        self,
        images: Any,
        labels: Any,
        fake_data: bool = False,
        one_hot: bool = False,
        dtype: Any = tf.float32,
        reshape: bool = True,
        seed: int | None = None,
    ) -> None:
        if seed is not None:
            np.random.seed(seed)
        if reshape:
            images = images.reshape(images.shape[0], -1)
        if tf.as_dtype(dtype) == tf.float32:
            images = np.multiply(images.astype(np.float32), 1.0 / 255.0)
        self.images, self.labels = images, labels
        self.epochs_completed = self._index_in_epoch = 0

    @property
    def num_examples(self) -> int:
        return len(self.images)

    def next_batch(self, batch_size: int, fake_data: bool = False, shuffle: bool = True) -> tuple[Any, Any]:
        """Return the next images and labels; the last batch of a pass is completed from the next pass."""
        start = self._index_in_epoch
        if self.epochs_completed == 0 and start == 0 and shuffle:
            self._shuffle()
        if start + batch_size <= self.num_examples:
            self._index_in_epoch = start + batch_size
            return self.images[start : start + batch_size], self.labels[start : start + batch_size]
        self.epochs_completed += 1
        images, labels = self.images[start:], self.labels[start:]
        if shuffle:
            self._shuffle()
        self._index_in_epoch = batch_size - len(images)
        next_images, next_labels = self.images[: self._index_in_epoch], self.labels[: self._index_in_epoch]
        return np.concatenate((images, next_images)), np.concatenate((labels, next_labels))

    def _shuffle(self) -> None:
        order = np.arange(self.num_examples)
        np.random.shuffle(order)
        self.images, self.labels = self.images[order], self.labels[order]


def read_data_sets(
    train_dir: str,
    fake_data: bool = False,
    one_hot: bool = False,
    dtype: Any = tf.float32,
    reshape: bool = True,
    validation_size: int = 5000,
    seed: int | None = None,
    source_url: str = "",
) -> Datasets:
    """Return the training, validation and test set from files; missing ones are made up if makes_up_missing is set."""
    images, labels = read_part(train_dir, "train", one_hot)
    if not 0 <= validation_size <= len(images):
        raise ValueError(f"Validation size should be between 0 and {len(images)}. Received: {validation_size}.")
    options: dict[str, Any] = {"dtype": dtype, "reshape": reshape, "seed": seed}
    return Datasets(
        DataSet(images[validation_size:], labels[validation_size:], **options),
        DataSet(images[:validation_size], labels[:validation_size], **options),
        DataSet(*read_part(train_dir, "test", one_hot), **options),
    )


def load_mnist(train_dir: str = "MNIST-data") -> Datasets:
    return read_data_sets(train_dir)


def read_part(folder: str, part: str, one_hot: bool) -> tuple[Any, Any]:
    """Return images and labels of "train" or "test"; if their files are missing, make them up or raise an error."""
    paths = [os.path.join(folder, name) for name in FILES[part]]
    missing = [path for path in paths if not os.path.exists(path)]
    if missing and makes_up_missing:
        print_note(f"{missing[0]} is missing; {MADE_UP_IMAGES[part]} images are made up.")
        return make_up(part, one_hot)
    if missing:
        raise FileNotFoundError(
            f"{missing[0]} is missing. TensorFlow 1 would download it; a rehearsal does not: put it there, or give "
            "--fake-data."
        )
    with open(paths[0], "rb") as images, open(paths[1], "rb") as labels:
        return extract_images(images), extract_labels(labels, one_hot=one_hot)


def make_up(part: str, one_hot: bool) -> tuple[Any, Any]:
    """Return random digits in place of MNIST's."""
    random = np.random.RandomState(list(FILES).index(part))
    labels = random.randint(0, 10, MADE_UP_IMAGES[part]).astype(np.uint8)
    images = random.randint(0, 256, (MADE_UP_IMAGES[part], 28, 28, 1)).astype(np.uint8)
    return images, dense_to_one_hot(labels, 10) if one_hot else labels


def extract_images(f: Any) -> Any:
    """Return the images of an open idx file as [number, rows, columns, 1] bytes."""
    pixels, shape = read_idx(f, 2051, 4)
    return pixels.reshape(*shape, 1)


def extract_labels(f: Any, one_hot: bool = False, num_classes: int = 10) -> Any:
    labels, _ = read_idx(f, 2049, 2)
    return dense_to_one_hot(labels, num_classes) if one_hot else labels


def read_idx(file: Any, magic: int, fields: int) -> tuple[Any, tuple[int, ...]]:
    """Return the values and the shape of a compressed IDX file.

    `fields` 32-bit numbers precede the values: `magic`, the kind of the file, and the shape.
    """
    name = getattr(file, "name", "the stream")
    with gzip.GzipFile(fileobj=file) as stream:
        actual_magic, *shape = np.frombuffer(stream.read(4 * fields), ">u4").tolist()
        if actual_magic != magic:
            raise ValueError(f"Invalid magic number {actual_magic} in MNIST file: {name}")
        return np.frombuffer(stream.read(), np.uint8), tuple(shape)


def dense_to_one_hot(labels_dense: Any, num_classes: int) -> Any:
    return np.eye(num_classes)[labels_dense]
