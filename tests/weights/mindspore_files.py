"""MindSpore checkpoints written from the published message, by code that shares nothing with the reader."""

from __future__ import annotations

import binascii
from collections.abc import Iterable

import numpy as np

TYPES = {
    "bool": "Bool",
    "int8": "Int8",
    "uint8": "UInt8",
    "int16": "Int16",
    "uint16": "UInt16",
    "int32": "Int32",
    "uint32": "UInt32",
    "int64": "Int64",
    "uint64": "UInt64",
    "float16": "Float16",
    "float32": "Float32",
    "float64": "Float64",
}


def number(value: int) -> bytes:
    """A varint."""
    septets = []
    while True:
        value, low = divmod(value, 128)
        septets.append(low + (128 if value else 0))
        if not value:
            return bytes(septets)


def encode_field(key: int, content: bytes) -> bytes:
    return number(key * 8 + 2) + number(len(content)) + content


def message(name: str, kind: str, shape: Iterable[int], content: bytes, packed: bool = False) -> bytes:
    """One value of a checkpoint."""
    if packed:
        dims = encode_field(1, b"".join(number(axis) for axis in shape))
    else:
        dims = b"".join(number(8) + number(axis) for axis in shape)
    tensor = dims + encode_field(2, kind.encode()) + encode_field(3, content)
    return encode_field(1, encode_field(1, name.encode()) + encode_field(2, tensor))


def value(name: str, array: np.ndarray) -> bytes:
    return message(name, TYPES[str(array.dtype)], array.shape, array.tobytes())


def checkpoint(arrays: dict[str, np.ndarray]) -> bytes:
    return b"".join(value(name, array) for name, array in arrays.items())


def with_checksum(content: bytes) -> bytes:
    """Bytes that save_checkpoint(crc_check=True) writes."""
    return content + b"crc_num" + binascii.crc32(content).to_bytes(10, "big")
