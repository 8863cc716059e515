"""Synthetic TFRecord files, made from the features that a script parses.

Floats are random. Integers are 1, which is a valid label whether classes count from 0 or from 1; features called height
or width are the size of the images. Bytes are random if the script decodes them as raw numbers of a known shape, a JPEG
if the feature is named like an image, the text jpeg if its name ends with format, else empty.
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

RECORDS = 512  # in all missing files together
MIN_RECORDS = 8  # in each file
IMAGE_SIDE = 64  # pixels of an image
SIZE_FEATURES = ("height", "width")


@dataclass(frozen=True)
class DeclaredFeature:
    """One feature as a script declares it."""

    count: int  # values in each record
    kind: str  # int64, float, bytes
    byte_count: int | None = None  # of a value that the script decodes as raw numbers


def write_records(path: Path, features: Mapping[str, DeclaredFeature], count: int) -> None:
    """Write a TFRecord file; its name is the seed of its contents."""
    random = np.random.default_rng(zlib.crc32(path.name.encode()))
    path.parent.mkdir(parents=True, exist_ok=True)
    with RecordWriter(path) as writer:
        for _ in range(count):
            example = {name: make_value(name, feature, random) for name, feature in features.items()}
            writer.write(encode_example(example))


def make_value(name: str, feature: DeclaredFeature, random: np.random.Generator) -> Encodable:
    """Return the values of one feature in one record."""
    makers: dict[str, Callable[[], Any]] = {
        "int64": lambda: IMAGE_SIDE if name.rpartition("/")[2] in SIZE_FEATURES else 1,
        "float": lambda: float(random.random()),
        "bytes": lambda: make_bytes(name, feature, random),
    }
    values = [makers[feature.kind]() for _ in range(feature.count)]
    return np.array(values, np.float32) if feature.kind == "float" else values


def make_bytes(name: str, feature: DeclaredFeature, random: np.random.Generator) -> bytes:
    """Return a value for a feature of bytes: raw numbers, a JPEG, the name of an image format, or nothing."""
    if feature.byte_count is not None:
        return random.integers(0, 256, feature.byte_count, np.uint8).tobytes()
    if "image" in name and name.rpartition("/")[2] in ("encoded", "image", "image_raw", "bytes", "jpeg", "data"):
        return make_jpeg(random)
    return b"jpeg" if name.endswith("format") else b""


def make_jpeg(random: np.random.Generator) -> bytes:
    """Return a JPEG of 64 coloured squares."""
    import simplejpeg

    coarse = random.integers(0, 256, (8, 8, 3), np.uint8)
    pixels = np.ascontiguousarray(coarse.repeat(IMAGE_SIDE // 8, 0).repeat(IMAGE_SIDE // 8, 1))
    encoded: bytes = simplejpeg.encode_jpeg(pixels, quality=90)
    return encoded


def count_records_per_file(files: int) -> int:
    return max(MIN_RECORDS, RECORDS // max(1, files))
