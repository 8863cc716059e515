"""One array as numpy.save writes it.

The header is a Python dictionary in text. What numpy itself writes is matched by one expression, twenty times faster
than parsing it; anything else that is still a literal is read as such, never evaluated.
"""

from __future__ import annotations

import ast
import math
import os
import re
from pathlib import Path
from typing import Any

from viaduct.comparison.formats import Header, Members, dtype_name, map_array, truncated_error, unreadable_error
from viaduct.comparison.tensors import Array
from viaduct.errors import BadData

MAGIC = b"\x93NUMPY"
FIRST = 256  # most headers are 128 bytes in all
LONGEST = 1 << 16  # numpy refuses headers of more than 10,000 characters
MOST_DIMENSIONS = 64

_USUAL = re.compile(
    r"\{'descr': '([^']{1,8})', 'fortran_order': (True|False), 'shape': \(((?:\d{1,18}, ?){0,64}(?:\d{1,18})?)\), \}\s*"
)


def read_headers(path: Path) -> Members:
    return {"": read_header(path)}


def open_array(path: Path, member: str = "") -> Array:
    return map_array(path, read_header(path))


def read_header(path: str | Path) -> Header:
    """Read the header, and check that the file is long enough for it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        try:
            start = os.read(descriptor, FIRST)
            found = os.fstat(descriptor).st_size
            if (end := header_end(start, Path(path))) > len(start):
                start += os.read(descriptor, end - len(start))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise unreadable_error(Path(path), error) from None
    header = parse_header(start, Path(path))
    if found < header.offset + header.size:
        raise truncated_error(Path(path), header.offset + header.size, found)
    return header


def header_end(start: bytes, path: Path) -> int:
    """Return the offset of the data: six bytes of magic, two of version, the length and the text come first."""
    if start[:6] != MAGIC:
        raise BadData(f"{path.name} is not a .npy file: it begins with {start[:6]!r}.")
    if len(start) < 12:
        raise BadData(f"{path.name} is cut short: {len(start)} bytes, not even a header.")
    prefix, width = (10, 2) if start[6] == 1 else (12, 4)
    end = prefix + int.from_bytes(start[8 : 8 + width], "little")
    if start[6] not in (1, 2, 3) or end > LONGEST:
        raise BadData(f"{path.name}: a .npy header of version {start[6]} and {end:,} bytes, which is not numpy's.")
    return end


def parse_header(start: bytes, path: Path) -> Header:
    """Parse the header at the start of a file."""
    end = header_end(start, path)
    if len(start) < end:
        raise truncated_error(path, end, len(start))
    text = start[10 if start[6] == 1 else 12 : end].decode("latin-1")
    if match := _USUAL.fullmatch(text):
        descr, fortran, dims = match.groups()
        shape = tuple(int(dim) for dim in dims.split(",") if dim.strip())
        return _check_header(descr, fortran == "True", shape, end, path)
    return _check_header(*_parse_literal(text, path), end, path)


def _parse_literal(text: str, path: Path) -> tuple[Any, bool, tuple[int, ...]]:
    try:
        fields = ast.literal_eval(text.strip())
        descr, fortran, shape = fields["descr"], fields["fortran_order"], fields["shape"]
        if not isinstance(fortran, bool) or not isinstance(shape, tuple) or not all(type(dim) is int for dim in shape):
            raise ValueError
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError):
        raise BadData(f"{path.name}: its .npy header is damaged: {text[:80]!r}.") from None
    return descr, fortran, shape


def _check_header(descr: object, fortran: bool, shape: tuple[int, ...], end: int, path: Path) -> Header:
    name = dtype_name(descr) if isinstance(descr, str) else None
    if isinstance(descr, str) and descr.lstrip("|<>=") == "O":
        raise BadData(
            f"{path.name} holds Python objects, which only unpickling could read; it is never unpickled.",
            "Save numbers: numpy.save(file, numpy.asarray(value, dtype=float)).",
        )
    if name is None or not isinstance(descr, str):
        raise BadData(f"{path.name} holds {str(descr)[:60]!r}, which is no type of number.")
    if len(shape) > MOST_DIMENSIONS or any(dim < 0 for dim in shape) or math.prod(shape) >= 1 << 62:
        raise BadData(f"{path.name}: no array can have the shape {str(shape)[:80]}.")
    return Header(name, shape, descr, end, fortran and len(shape) > 1)
