"""Pixels to PNG: the dozen lines of the format that writing needs. Reading is png.py."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Pixels: TypeAlias = npt.NDArray[np.uint8]

COLOUR_TYPES = {1: 0, 3: 2, 4: 6}
"""Channels to the format's own code: grey, truecolour, truecolour with alpha."""


def encode_png(pixels: Pixels) -> bytes:
    """Encode an image of shape (height, width, 1, 3 or 4); raise ValueError for any other array."""
    check_pixels(pixels)
    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, COLOUR_TYPES[channels], 0, 0, 0)
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # each row opens with its filter: 0, none
    rows[:, 1:] = pixels.reshape(height, -1)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(kind, body) for kind, body in chunks)


def chunk(kind: bytes, body: bytes) -> bytes:
    """Encode a chunk with length and checksum."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def check_pixels(pixels: Pixels, channels: Collection[int] = COLOUR_TYPES) -> None:
    """Refuse arrays that are no 8-bit image."""
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] not in channels or not pixels.size:
        raise ValueError(f"an image is uint8 of shape (height, width, 3), not {pixels.dtype} of shape {pixels.shape}.")
