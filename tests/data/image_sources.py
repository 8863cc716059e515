"""Small sources of images to build records from: class folders, lists and IDX files."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from data.record_files import png

JPEG = b"\xff\xd8\xff\xe0 not decoded here, only carried "
CLASSES = {"ant": 20, "bee": 9, "cat": 2, "dog": 1}


def make_folders(folder: Path, classes: dict[str, int] = CLASSES, first: int = 0) -> Path:
    """Write so many images into the folder of each class, JPEGs and PNGs in turns, named by number from `first` on."""
    number = first
    for name, count in classes.items():
        (folder / name).mkdir(parents=True)
        for _ in range(count):
            content = png(number) if number % 2 else JPEG + str(number).encode()
            (folder / name / f"{number:04d}.{'png' if number % 2 else 'JPEG'}").write_bytes(content)
            number += 1
    return folder


def make_list(folder: Path, *lines: str) -> Path:
    """Write a list of images into their folder."""
    (folder / "list.csv").write_text("\n".join(lines) + "\n", encoding="utf-8-sig")
    return folder / "list.csv"


def make_idx(folder: Path, count: int, pack=lambda content: content) -> tuple[Path, Path, np.ndarray]:
    """Write a pair of IDX files; return their paths, images first, and the pixels."""
    pixels = np.random.default_rng(count).integers(0, 256, (count, 5, 7), dtype=np.uint8)
    labels = (np.arange(count) % 4).astype(np.uint8)
    images, groups = folder / f"{count}-images", folder / f"{count}-labels"
    images.write_bytes(pack(struct.pack(">IIII", 0x803, count, 5, 7) + pixels.tobytes()))
    groups.write_bytes(pack(struct.pack(">II", 0x801, count) + labels.tobytes()))
    return images, groups, pixels
