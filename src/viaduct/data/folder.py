"""Class folders and .csv lists of images as a training source, without building records first.

Classes, labels and the choice of validation images are those of `viaduct data build` with its defaults.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from viaduct.data.build import FIRST_LABEL, SEED, VALIDATION_SHARE, assign_labels, split_off_validation
from viaduct.data.example import NO_BOXES, ImageFields
from viaduct.data.index import RecordFolder
from viaduct.data.mindrecord_folder import MindRecordFolder, has_mindrecords, open_mindrecord_splits
from viaduct.data.origins import Origin, SourceImage, find_origin
from viaduct.data.shards import SPLITS, find_shard_sets
from viaduct.data.source import Labels
from viaduct.errors import BadData


class ImageFolder:
    """Images of a split by number, with the methods of `RecordFolder` (index.py) that batches use.

    `labels` are the labels by class name.
    """

    def __init__(self, origin: Origin, images: Sequence[SourceImage], labels: dict[str, int]) -> None:
        self.origin, self.images = origin, images
        self.names = {label: name for name, label in labels.items()}
        self._labels = np.array([labels[image.class_name] for image in images], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.images)

    def read_fields(self, number: int) -> ImageFields:
        """Return image, label and class name; there are no boxes."""
        image = self.images[number]
        encoded = memoryview(self.origin.read(image))
        return ImageFields(encoded, int(self._labels[number]), image.class_name, NO_BOXES)

    def read_labels(self, *, skip_bad: bool = False) -> Labels:
        """Return the label of every image; `skip_bad` has no effect, because no label can be unreadable here."""
        return self._labels

    def make_error(self, number: int, reason: str, *hints: str) -> BadData:
        """Return an error that names the image."""
        return BadData(f"{self.origin.path}: {self.images[number].name}: {reason.rstrip('.')}.", *hints)

    def describe_location(self, number: int) -> str:
        """Return the name of an image, for messages."""
        return self.images[number].name

    @property
    def how_to_list_bad(self) -> str:
        """Hint on how to find all bad images, for messages about one."""
        path = self.origin.path
        return f"To find all of them: `viaduct data build {path} --out DIR`, then `viaduct data check DIR --deep`."


def has_images(path: Path) -> bool:
    """Return True for the name of a .csv list, and for a folder that has subfolders but no TFRecord files."""
    if not path.is_dir():
        return path.suffix.lower() == ".csv"
    has_records = any(find_shard_sets(path, split) for split in SPLITS)
    return not has_records and any(entry.is_dir() for entry in path.iterdir())


def read_class_names(path: Path) -> dict[int, str]:
    """Return the class name of each label of class folders or a list."""
    return {label: name for name, label in assign_labels(find_origin(path), FIRST_LABEL).items()}


def open_split(path: Path, split: str) -> RecordFolder | ImageFolder | MindRecordFolder:
    """Open one split ("train" or "validation") of TFRecords, MindRecords, class folders or a list."""
    if has_mindrecords(path):
        train_rows, validation_rows = open_mindrecord_splits(path)
        if split != "train":
            return validation_rows
        if train_rows is None:
            raise BadData(f"{path}: there are no MindRecord files to train on.", "Give --split validation.")
        return train_rows
    if not has_images(path):
        return RecordFolder(path, split)
    train, validation = open_image_splits(path)
    return train if split == "train" else validation


def open_image_splits(path: Path) -> tuple[ImageFolder, ImageFolder]:
    """Open the training and the validation images; without the latter, a share of every class is set aside for them."""
    origin = find_origin(path)
    labels = assign_labels(origin, FIRST_LABEL)
    train, validation = origin.train, origin.validation
    if validation is None:
        train, validation = split_off_validation(train, VALIDATION_SHARE, SEED)
    if not validation:
        raise BadData(f"{path}: there are no validation images, and too few to set some aside.")
    return ImageFolder(origin, train, labels), ImageFolder(origin, validation, labels)
