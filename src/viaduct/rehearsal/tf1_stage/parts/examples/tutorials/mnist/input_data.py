"""MNIST as the scripts of TensorFlow 1 read it: `read_data_sets(folder, one_hot=True)`, `train.next_batch(64)`.

The four files are read from the folder and never downloaded. With --fake-data missing ones are made up.
"""

from __future__ import annotations

import collections
import gzip
import os
import sys
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

Datasets = collections.namedtuple("Datasets", ["train", "validation", "test"])
FILES = {
    "train": ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
    "test": ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"),
}
MADE_UP = {"train": 6000, "test": 1000}
makes_up_missing = False  # set by --fake-data


class DataSet:
    """Images and labels, in batches; each pass has another order."""

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
        self._images, self._labels = images, labels
        self._epochs_completed = self._index_in_epoch = 0

    @property
    def images(self) -> Any:
        return self._images

    @property
    def labels(self) -> Any:
        return self._labels

    @property
    def num_examples(self) -> int:
        return len(self._images)

    @property
    def epochs_completed(self) -> int:
        return self._epochs_completed

    def next_batch(self, batch_size: int, fake_data: bool = False, shuffle: bool = True) -> tuple[Any, Any]:
        """Return the next images and labels; a batch at the end of a pass is filled from the next one."""
        start = self._index_in_epoch
        if self._epochs_completed == 0 and start == 0 and shuffle:
            self._shuffle()
        if start + batch_size <= self.num_examples:
            self._index_in_epoch = start + batch_size
            return self._images[start : start + batch_size], self._labels[start : start + batch_size]
        self._epochs_completed += 1
        images, labels = self._images[start:], self._labels[start:]
        if shuffle:
            self._shuffle()
        self._index_in_epoch = batch_size - len(images)
        more_images, more_labels = self._images[: self._index_in_epoch], self._labels[: self._index_in_epoch]
        return np.concatenate((images, more_images)), np.concatenate((labels, more_labels))

    def _shuffle(self) -> None:
        order = np.arange(self.num_examples)
        np.random.shuffle(order)
        self._images, self._labels = self._images[order], self._labels[order]


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
    """Return training, validation and test set, from files or made up where there are none."""
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
    """Return the data sets with the defaults of read_data_sets."""
    return read_data_sets(train_dir)


def read_part(folder: str, part: str, one_hot: bool) -> tuple[Any, Any]:
    """Return images and labels of a part, made up where its files are missing."""
    paths = [os.path.join(folder, name) for name in FILES[part]]
    missing = [path for path in paths if not os.path.exists(path)]
    if missing and makes_up_missing:
        print(f"viaduct rehearse: {missing[0]} is missing; {MADE_UP[part]} images are made up.", file=sys.stderr)
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
    random = np.random.RandomState(len(part))
    labels = random.randint(0, 10, MADE_UP[part]).astype(np.uint8)
    images = random.randint(0, 256, (MADE_UP[part], 28, 28, 1)).astype(np.uint8)
    return images, dense_to_one_hot(labels, 10) if one_hot else labels


def extract_images(f: Any) -> Any:
    """Return the images of an open idx file as [number, rows, columns, 1] bytes."""
    numbers, shape = read_idx(f, 2051, 4)
    return numbers.reshape(*shape, 1)


def extract_labels(f: Any, one_hot: bool = False, num_classes: int = 10) -> Any:
    """Return the labels of an IDX file."""
    labels, _ = read_idx(f, 2049, 2)
    return dense_to_one_hot(labels, num_classes) if one_hot else labels


def read_idx(file: Any, magic: int, fields: int) -> tuple[Any, tuple[int, ...]]:
    """Return the array of a compressed IDX file, after a check of its head."""
    name = getattr(file, "name", "the stream")
    with gzip.GzipFile(fileobj=file) as stream:
        found, *shape = np.frombuffer(stream.read(4 * fields), ">u4").tolist()
        if found != magic:
            raise ValueError(f"Invalid magic number {found} in MNIST file: {name}")
        return np.frombuffer(stream.read(), np.uint8), tuple(shape)


def dense_to_one_hot(labels_dense: Any, num_classes: int) -> Any:
    """Return labels as one-hot rows."""
    return np.eye(num_classes)[labels_dense]
