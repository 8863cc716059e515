"""File formats of tensors: one module for each format, the same functions in each.

    read_headers(path)         -> {member: header, or a text that says why it cannot be read}
    open_array(path, member)   -> a read-only array, memory-mapped if the file allows it

A member is a tensor's key in the file; it is "" for .npy and .pt, which hold one tensor. Sizes are checked against the
file before anything is mapped. Nothing in a file is executed: an array of Python objects is refused by its header.
"""

from __future__ import annotations

import math
import mmap
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from viaduct.comparison.records import Array
from viaduct.errors import BadData

BFLOAT16 = "bfloat16"  # NumPy has no such dtype: arrays have the bits as uint16
MAX_READ_BYTES = 1 << 16  # larger tensors are mapped, smaller ones read


class Header(NamedTuple):
    """Header of a tensor: its description and its position in the file."""

    dtype: str  # float32, bfloat16 …
    shape: tuple[int, ...]
    descr: str  # NumPy's name of the dtype in the file: <f4, >i8, |b1, V2 (bfloat16)
    offset: int  # of the first element, from the start of the file or of the unpacked member
    fortran: bool = False

    @property
    def element_count(self) -> int:
        return math.prod(self.shape)

    @property
    def byte_count(self) -> int:
        return self.element_count * _choose_numpy_dtype(self).itemsize


Members = Mapping[str, Header | str]


# NumPy's names of dtypes; structured types, strings and dates do not match.
_PLAIN = re.compile(r"[<>|=]?([fiu])([1248])|[<>|=]?(c)(8|16)|[<>|=]?(b)(1)|[<>|=]?(V)(2)")
_NAMES = {"f": "float", "i": "int", "u": "uint", "c": "complex"}


def parse_dtype(descr: str) -> str | None:
    """Return float32 for <f4, bfloat16 for V2 (bfloat16 in .npy files); None for objects, strings and structures."""
    match = _PLAIN.fullmatch(descr)
    if match is None:
        return None
    kind, width = (group for group in match.groups() if group)
    if kind in "bV":
        return "bool" if kind == "b" else BFLOAT16
    return None if (kind, width) == ("f", "1") else f"{_NAMES[kind]}{8 * int(width)}"


def map_array(path: Path, header: Header, base: int = 0) -> Array:
    """Return a read-only array of a file's tensor. `base`: start of the member that the header's offset refers to."""
    start, dtype = base + header.offset, _choose_numpy_dtype(header)
    try:
        with open(path, "rb") as file:
            file_size = os.fstat(file.fileno()).st_size
            if file_size < start + header.byte_count:
                raise make_truncated_error(path, start + header.byte_count, file_size)
            if not header.element_count:
                return shape_array(np.empty(0, dtype), header)
            data = _read_or_map(file, start, header.byte_count)
            return shape_array(np.frombuffer(data, dtype, header.element_count), header)
    except OSError as error:
        raise make_unreadable_error(path, error) from None


def _read_or_map(file: Any, start: int, size: int) -> memoryview | bytes:
    if size <= MAX_READ_BYTES:
        file.seek(start)
        return bytes(file.read(size))
    first = start - start % mmap.ALLOCATIONGRANULARITY
    window = mmap.mmap(file.fileno(), start + size - first, access=mmap.ACCESS_READ, offset=first)
    return memoryview(window)[start - first :]


def from_bytes(data: bytes, header: Header) -> Array:
    """Return the tensor of an unpacked member (header and tensor)."""
    return shape_array(np.frombuffer(data, _choose_numpy_dtype(header), header.element_count, header.offset), header)


def shape_array(flat: Array, header: Header) -> Array:
    """Return a read-only array of the header's shape."""
    array = flat.reshape(header.shape, order="F" if header.fortran else "C")
    array.flags.writeable = False
    return array


def _choose_numpy_dtype(header: Header) -> np.dtype[Any]:
    """Return the array's dtype: the file's dtype, or uint16 for bfloat16."""
    return np.dtype(header.descr.replace("V2", "u2").replace("|u2", "<u2"))


class FileStamp(NamedTuple):
    """Size and modification time of a file: part of a cache's key, so that a changed file is read again."""

    size: int
    modified_ns: int


def read_file_stamp(path: Path) -> FileStamp:
    """Return the stamp of a file; raise BadData if it is not a regular file."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise make_unreadable_error(path, error) from None
    if not stat.S_ISREG(status.st_mode):
        raise BadData(f"{path.name} is not a regular file.")
    return FileStamp(status.st_size, status.st_mtime_ns)


def widen_bfloat16(bits: Array) -> Array:
    """Return the bits of bfloat16 values, which are the upper half of a float32, as float32."""
    widened: Array = (bits.astype(np.uint32) << 16).view(np.float32)
    return widened


def make_truncated_error(path: Path, needed: int, file_size: int) -> BadData:
    return BadData(f"{path.name} is cut short: by its header it has {needed:,} bytes, but the file has {file_size:,}.")


def make_unreadable_error(path: Path, error: OSError) -> BadData:
    return BadData(f"{path.name} cannot be read: {error.strerror or error}.")
