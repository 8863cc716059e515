"""CRC-32C (Castagnoli), the checksum of TFRecord files."""

from __future__ import annotations

import warnings
from typing import TypeAlias

import numpy as np

with warnings.catch_warnings():
    warnings.simplefilter("ignore", RuntimeWarning)  # google_crc32c warns if its own C extension is missing
    import google_crc32c

Buffer: TypeAlias = bytes | bytearray | memoryview


def crc32c(data: Buffer) -> int:
    """Return the checksum of the data."""
    # google_crc32c accepts bytes and arrays, but neither memoryview nor bytearray; making an array copies nothing.
    return int(google_crc32c.value(data if isinstance(data, bytes) else np.frombuffer(data, dtype=np.uint8)))
