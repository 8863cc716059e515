"""Fashion-MNIST's four files become two splits in three channels; a wrong one is named."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from viaduct.data.fashion_mnist import NAMES, FashionMnist
from viaduct.errors import BadData

SOURCE = FashionMnist(global_batch=4, size=28)


def write(folder: Path, split: str, count: int, *, zipped: bool, labels: np.ndarray | None = None) -> np.ndarray:
    pixels = np.random.default_rng(count).integers(0, 256, (count, 28, 28), dtype=np.uint8)
    labels = np.arange(count, dtype=np.uint8) % 10 if labels is None else labels
    contents = {
        f"{split}-images-idx3-ubyte": struct.pack(">IIII", 0x803, count, 28, 28) + pixels.tobytes(),
        f"{split}-labels-idx1-ubyte": struct.pack(">II", 0x801, len(labels)) + labels.tobytes(),
    }
    for name, content in contents.items():
        file = folder / (f"{name}.gz" if zipped else name)
        file.write_bytes(gzip.compress(content) if zipped else content)
    return pixels


def test_plain_and_gzipped_files_are_read_as_three_equal_channels(tmp_path: Path) -> None:
    train, test = write(tmp_path, "train", 12, zipped=True), write(tmp_path, "t10k", 5, zipped=False)
    found = SOURCE.load(tmp_path)
    assert found.train.images.shape == (12, 28, 28, 3)
    assert (found.train.images == train[..., None]).all()
    assert (found.validation.images == test[..., None]).all()
    assert found.train.labels.tolist() == [*range(10), 0, 1]
    assert found.names == NAMES


def test_a_missing_file_is_named_with_the_command_that_brings_it(tmp_path: Path) -> None:
    write(tmp_path, "train", 3, zipped=True)
    with pytest.raises(BadData, match="t10k-images-idx3-ubyte") as caught:
        SOURCE.load(tmp_path)
    assert "viaduct data fetch fashion-mnist" in " ".join(caught.value.hints)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="nowhere"):
        SOURCE.load(tmp_path / "nowhere")


def test_labels_of_another_set_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "train", 3, zipped=True, labels=np.array([1, 2, 47], np.uint8))
    write(tmp_path, "t10k", 3, zipped=True)
    with pytest.raises(BadData, match="label 47"):
        SOURCE.load(tmp_path)


def test_as_many_labels_as_images(tmp_path: Path) -> None:
    write(tmp_path, "train", 3, zipped=True, labels=np.array([1, 2], np.uint8))
    write(tmp_path, "t10k", 3, zipped=True)
    with pytest.raises(BadData, match="3 images, but 2 labels"):
        SOURCE.load(tmp_path)
