"""Fashion-MNIST in its four IDX files, plain or gzipped: 70,000 grey images of 28x28.

    train-images-idx3-ubyte[.gz], train-labels-idx1-ubyte[.gz], t10k-images-idx3-ubyte[.gz], t10k-labels-idx1-ubyte[.gz]

`viaduct data fetch fashion-mnist --out fashion` downloads them. Grey becomes three equal channels, as networks expect.
Other sets in files of these names, such as MNIST, can be read, too, but their classes get Fashion-MNIST's names.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from viaduct.data.notices import join_first
from viaduct.data.origins import read_idx_pair
from viaduct.data.source import Colour, Images, ImageSet, Split
from viaduct.errors import BadData

NAMES = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle-boot")
HOW_TO_GET = "`viaduct data fetch fashion-mnist --out DIR` downloads the four files."


@dataclass(frozen=True)
class FashionMnist(Images):
    """60,000 images to train on and 10,000 to validate, read from the folder given with --data."""

    name: ClassVar[str] = "fashion-mnist"
    class_names: ClassVar[tuple[str, ...]] = NAMES
    needs_path: ClassVar[bool] = True
    how_to_get: ClassVar[str] = HOW_TO_GET

    mean: Colour = (0.2860, 0.2860, 0.2860)
    std: Colour = (0.3530, 0.3530, 0.3530)

    @property
    def usual_image_count(self) -> int:
        return 60_000

    @property
    def image_shape(self) -> tuple[int, int]:
        return 28, 28

    def check_path(self, path: Path) -> None:
        if not path.is_dir():
            raise BadData(f"{path}: there is no such folder.", HOW_TO_GET)
        for split in ("train", "t10k"):
            find_files(path, split)

    def load(self, path: Path | None) -> ImageSet:
        if path is None:
            raise BadData("fashion-mnist is read from a folder; none was given.", "Give --data DIR.", HOW_TO_GET)
        self.check_path(path)
        return ImageSet(read_split(path, "train"), read_split(path, "t10k"), NAMES)


def read_split(folder: Path, split: str) -> Split:
    """Read the images and labels of one split; raise `BadData` if their numbers differ or a label is above 9."""
    images, labels = find_files(folder, split)
    pixels, classes = read_idx_pair(images, labels)
    if len(classes) and classes.max() >= len(NAMES):
        raise BadData(f"{labels}: label {classes.max()} found; expected 0 to {len(NAMES) - 1}.")
    return Split(np.repeat(pixels[..., None], 3, axis=3), classes.astype(np.int64))


def find_files(folder: Path, split: str) -> tuple[Path, Path]:
    """Return the file of a split's images and the file of its labels."""
    return find_file(folder, f"{split}-images-idx3-ubyte"), find_file(folder, f"{split}-labels-idx1-ubyte")


def find_file(folder: Path, name: str) -> Path:
    """Return the file of that name, plain or gzipped."""
    for file in (folder / name, folder / f"{name}.gz"):
        if file.is_file():
            return file
    present = join_first(sorted(entry.name for entry in folder.iterdir()), 12) or "nothing"
    raise BadData(f"{folder / name}[.gz]: there is no such file.", f"{folder} has: {present}", HOW_TO_GET)
