"""File formats of tensors: one module a format, the same functions in each.

    read_headers(path)         -> {key: what the header says, or why it cannot be read}; "" in files of one tensor
    open_array(path, member)   -> a read-only array over a memory map where the file allows it

Only headers are looked at to describe a tensor. Sizes are checked against the file before anything is mapped, and
nothing in a file is ever executed: an array of Python objects is refused by its header.
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

from viaduct.comparison.tensors import Array
from viaduct.errors import BadData

BFLOAT16 = "bfloat16"  # numpy has no such type: the bits are handed out as uint16
SMALL = 1 << 16  # up to so many bytes reading is cheaper than mapping


class Header(NamedTuple):
    """Header of a tensor: enough to describe it and to find it in its file."""

    dtype: str  # float32, bfloat16 …
    shape: tuple[int, ...]
    stored: str  # numpy's name of the type as it is in the file: <f4, >i8, |b1
    offset: int  # where the elements begin, from the start of the file or of the unpacked member
    fortran: bool = False

    @property
    def values(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """Return the number of bytes."""
        return self.values * _width(self.stored)


Members = Mapping[str, Header | str]


# numpy's words for types it knows; structured types, strings and dates do not match.
_PLAIN = re.compile(r"[<>|=]?([fiu])([1248])|[<>|=]?(c)(8|16)|[<>|=]?(b)(1)|[<>|=]?(V)(2)")
_NAMES = {"f": "float", "i": "int", "u": "uint", "c": "complex"}
_WIDTH = re.compile(r"\d+")


def dtype_name(descr: str) -> str | None:
    """Return float32 for <f4, bfloat16 for V2 (as it is saved); None for objects, strings and structures."""
    match = _PLAIN.fullmatch(descr)
    if match is None:
        return None
    kind, width = (group for group in match.groups() if group)
    if kind in "bV":
        return "bool" if kind == "b" else BFLOAT16
    return None if (kind, width) == ("f", "1") else f"{_NAMES[kind]}{8 * int(width)}"


def map_array(path: Path, header: Header, base: int = 0) -> Array:
    """Return a read-only array over a map of the file. `base`: where the member begins to which the offset belongs."""
    start, dtype = base + header.offset, _numpy_type(header)
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno()).st_size
            if found < start + header.size:
                raise truncated_error(path, start + header.size, found)
            if not header.values:
                return shape_array(np.empty(0, dtype), header)
            return shape_array(np.frombuffer(_bytes_of(file, start, header.size), dtype, header.values), header)
    except OSError as error:
        raise unreadable_error(path, error) from None


def _bytes_of(file: Any, start: int, size: int) -> memoryview | bytes:
    if size <= SMALL:
        file.seek(start)
        return bytes(file.read(size))
    first = start - start % mmap.ALLOCATIONGRANULARITY
    window = mmap.mmap(file.fileno(), start + size - first, access=mmap.ACCESS_READ, offset=first)
    return memoryview(window)[start - first :]


def from_bytes(data: bytes, header: Header) -> Array:
    """Return the tensor of an unpacked member, which holds the header and the tensor."""
    return shape_array(np.frombuffer(data, _numpy_type(header), header.values, header.offset), header)


def shape_array(flat: Array, header: Header) -> Array:
    """Return a read-only array of the header's shape."""
    array = flat.reshape(header.shape, order="F" if header.fortran else "C")
    array.flags.writeable = False
    return array


def _numpy_type(header: Header) -> np.dtype[Any]:
    return np.dtype(header.stored.replace("V2", "u2").replace("|u2", "<u2"))


def _width(stored: str) -> int:
    match = _WIDTH.search(stored)
    return int(match.group()) if match else 1


def stamp(path: Path) -> tuple[int, int]:
    """Return size and time of change, a cache's key for what was read of the file. Pipes and devices are refused."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise unreadable_error(path, error) from None
    if not stat.S_ISREG(found.st_mode):
        raise BadData(f"{path.name} is not a regular file.")
    return found.st_size, found.st_mtime_ns


def truncated_error(path: Path, needed: int, found: int) -> BadData:
    return BadData(f"{path.name} is cut short: its header speaks of {needed:,} bytes, the file has {found:,}.")


def unreadable_error(path: Path, error: OSError) -> BadData:
    return BadData(f"{path.name} cannot be read: {error.strerror or error}.")
