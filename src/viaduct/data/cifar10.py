"""CIFAR-10 in its binary version: six files of 10,000 records of a label byte and three colour planes of 32x32 bytes.

    data_batch_1.bin … data_batch_5.bin, test_batch.bin, batches.meta.txt

https://www.cs.toronto.edu/~kriz/cifar.html
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from viaduct.data.notices import describe_error, join_first
from viaduct.data.source import Colour, Images, ImageSet, Labels, Pixels, Split
from viaduct.errors import BadData

FOLDER = "cifar-10-batches-bin"
TRAIN_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST_FILE = "test_batch.bin"
NAMES_FILE = "batches.meta.txt"
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

SIDE = 32
RECORD_BYTES = 1 + 3 * SIDE * SIDE
RECORDS_PER_FILE = 10_000

HOW_TO_GET = (
    "`viaduct data fetch cifar10 --out DIR` downloads it (170 MB); without a network: --from cifar-10-binary.tar.gz, "
    "from https://www.cs.toronto.edu/~kriz/cifar.html"
)


@dataclass(frozen=True)
class Cifar10(Images):
    """50,000 images to train on and 10,000 to validate, read from the folder given with --data."""

    name: ClassVar[str] = "cifar10"
    class_names: ClassVar[tuple[str, ...]] = NAMES
    needs_path: ClassVar[bool] = True
    how_to_get: ClassVar[str] = HOW_TO_GET

    mean: Colour = (0.4914, 0.4822, 0.4465)
    std: Colour = (0.2023, 0.1994, 0.2010)

    @property
    def image_shape(self) -> tuple[int, int]:
        return SIDE, SIDE

    def check_path(self, path: Path) -> None:
        folder = find_folder(path)
        for file in (*TRAIN_FILES, TEST_FILE):
            check_file(folder / file)

    def load(self, path: Path | None) -> ImageSet:
        if path is None:
            raise BadData("cifar10 is read from a folder; none was given.", "Give --data DIR.", HOW_TO_GET)
        folder = find_folder(path)
        return ImageSet(read_split(folder, TRAIN_FILES), read_split(folder, (TEST_FILE,)), read_names(folder))


def find_folder(path: Path) -> Path:
    """Return the folder that has the files: `path`, or the archive's folder in it."""
    if path.is_file():
        raise BadData(f"{path}: expected a folder, found a file.", "If it is the archive, unpack it first.")
    if not path.is_dir():
        raise BadData(f"{path}: there is no such folder.", "Give --data DIR.", HOW_TO_GET)
    inner = path / FOLDER
    return inner if inner.is_dir() else path


def read_split(folder: Path, files: tuple[str, ...]) -> Split:
    images, labels = zip(*(read_records(folder / file) for file in files), strict=True)
    return Split(np.concatenate(images), np.concatenate(labels))


def read_records(file: Path) -> tuple[Pixels, Labels]:
    """Read the images and labels of one binary file."""
    check_file(file)
    try:
        records = np.fromfile(file, dtype=np.uint8).reshape(-1, RECORD_BYTES)
    except OSError as error:
        raise BadData(f"{file}: could not be read: {describe_error(error)}.") from error
    labels = records[:, 0].astype(np.int64)
    check_labels(file, labels)
    planes_NCHW = records[:, 1:].reshape(-1, 3, SIDE, SIDE)
    return np.ascontiguousarray(planes_NCHW.transpose(0, 2, 3, 1)), labels


def check_file(file: Path) -> None:
    """Raise `BadData` for a file that is missing or has another size."""
    if not file.is_file():
        raise BadData(f"{file}: there is no such file.", *explain_missing(file))
    expected = RECORDS_PER_FILE * RECORD_BYTES
    size = file.stat().st_size
    if size == expected:
        return
    surplus = size % RECORD_BYTES
    ending = f"ends {surplus:,} bytes into a record" if surplus else f"holds {size // RECORD_BYTES:,} whole records"
    raise BadData(
        f"{file}: expected {expected:,} bytes, found {size:,}.",
        f"It {ending}, instead of {RECORDS_PER_FILE:,} of {RECORD_BYTES:,} bytes. Copy or download it again.",
        HOW_TO_GET,
    )


def explain_missing(file: Path) -> list[str]:
    """Return hints about the contents of the folder."""
    present = sorted(entry.name for entry in file.parent.iterdir())
    hints = [f"{file.parent} has: {join_first(present, 12)}" if present else f"{file.parent} is empty."]
    pickled = [file.parent, file.parent / "cifar-10-batches-py"]
    if any((folder / "data_batch_1").is_file() for folder in pickled):
        hints.append("data_batch_1 without .bin is the Python version; viaduct reads the binary version.")
    return [*hints, HOW_TO_GET]


def check_labels(file: Path, labels: Labels) -> None:
    """Raise `BadData` if a label is not one of the ten classes."""
    wrong = np.flatnonzero(labels >= len(NAMES))
    if len(wrong):
        record = int(wrong[0])
        raise BadData(
            f"{file}: record {record:,} is mislabelled: expected 0 to 9, found {labels[record]}.",
            f"{len(wrong):,} of its {len(labels):,} records are. Is it really CIFAR-10 (not CIFAR-100)?",
        )


def read_names(folder: Path) -> tuple[str, ...]:
    """Read the class names from batches.meta.txt; return CIFAR-10's if there is no such file."""
    file = folder / NAMES_FILE
    if not file.is_file():
        return NAMES
    names = tuple(file.read_text(encoding="utf-8", errors="replace").split())
    if len(names) != len(NAMES):
        raise BadData(f"{file}: expected {len(NAMES)} class names, found {len(names)}.")
    return names
