"""Small record files to test with, whose images can be told apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from viaduct.data.example import encode_example
from viaduct.data.png import encode_png
from viaduct.data.shards import format_shard_name
from viaduct.data.tfrecord import RecordWriter

SIZES = [5, 0, 7, 3]  # records in each of the four training files of the fixture `records`


def png(number: int) -> bytes:
    """An image of 4x4 that no other number has."""
    return encode_png(np.full((4, 4, 3), (number & 255, number >> 8 & 255, number >> 16), dtype=np.uint8))


def message(number: int, label: int) -> bytes:
    return encode_example({"image/encoded": png(number), "image/class/label": label, "image/class/text": f"c{label}"})


def write_split(folder: Path, split: str, sizes: list[int], classes: int = 3, first: int = 0) -> None:
    """Shards of these many records; labels go round from 1 to `classes`."""
    folder.mkdir(parents=True, exist_ok=True)
    number = first
    for shard, size in enumerate(sizes):
        with RecordWriter(folder / format_shard_name(split, shard, len(sizes))) as writer:
            for _ in range(size):
                writer.write(message(number, number % classes + 1))
                number += 1


def train_file(folder: Path, number: int = 0) -> Path:
    """Path of a training file of the fixture `records`."""
    return folder / format_shard_name("train", number, len(SIZES))
