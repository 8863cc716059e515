"""Synthetic TFRecord files, made from the features that a script parses.

Numbers are drawn anew for each record, but a whole number is 1: as a label it is in range whether classes count from 0
or 1. Bytes are a JPEG, or, where the script decodes them as raw numbers of a declared shape, as many bytes as that is.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from viaduct.data.example import Encodable, encode_example
from viaduct.data.tfrecord import RecordWriter

RECORDS = 512  # in all files of one kind together
LEAST = 8  # in each
SIDE = 64  # of an image
SIZES = ("height", "width")


@dataclass(frozen=True)
class Declared:
    """One feature: how many values of which kind. `raw` bytes are decoded as plain numbers."""

    count: int
    kind: str  # int64, float, bytes
    raw: int | None = None


def write_records(path: Path, features: Mapping[str, Declared], count: int) -> None:
    """Write a TFRecord file; its name is the seed of its contents."""
    random = np.random.default_rng(zlib.crc32(path.name.encode()))
    path.parent.mkdir(parents=True, exist_ok=True)
    with RecordWriter(path) as writer:
        for _ in range(count):
            writer.write(
                encode_example({name: make_value(name, declared, random) for name, declared in features.items()})
            )


def make_value(name: str, declared: Declared, random: np.random.Generator) -> Encodable:
    """Return the values of one feature in one record."""
    makers: dict[str, Callable[[], Any]] = {
        "int64": lambda: SIDE if name.rpartition("/")[2] in SIZES else 1,
        "float": lambda: float(random.random()),
        "bytes": lambda: make_bytes(name, declared, random),
    }
    values = [makers[declared.kind]() for _ in range(declared.count)]
    return np.array(values, np.float32) if declared.kind == "float" else values


def make_bytes(name: str, declared: Declared, random: np.random.Generator) -> bytes:
    """Return bytes for a feature: raw numbers, a JPEG, or nothing."""
    if declared.raw is not None:
        return random.integers(0, 256, declared.raw, np.uint8).tobytes()
    if "image" in name and name.rpartition("/")[2] in ("encoded", "image", "image_raw", "bytes", "jpeg", "data"):
        return make_jpeg(random)
    return b"jpeg" if name.endswith("format") else b""


def make_jpeg(random: np.random.Generator) -> bytes:
    """Return an encoded image of 64 coloured squares."""
    import simplejpeg

    coarse = random.integers(0, 256, (8, 8, 3), np.uint8)
    pixels = np.ascontiguousarray(coarse.repeat(SIDE // 8, 0).repeat(SIDE // 8, 1))
    encoded: bytes = simplejpeg.encode_jpeg(pixels, quality=90)
    return encoded


def records_per_file(files: int) -> int:
    """Return the number of records in each of so many files."""
    return max(LEAST, RECORDS // max(1, files))
