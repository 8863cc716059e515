"""One array as numpy.save writes it.

The header is a Python dictionary as text. The usual form is matched by one regular expression, twenty times faster than
parsing; any other literal is parsed with ast.literal_eval.
"""

from __future__ import annotations

import ast
import math
import os
import re
from pathlib import Path
from typing import Any

from viaduct.comparison.formats import (
    Header,
    Members,
    make_truncated_error,
    make_unreadable_error,
    map_array,
    parse_dtype,
)
from viaduct.comparison.records import Array
from viaduct.errors import BadData

MAGIC = b"\x93NUMPY"
FIRST_BYTES = 256  # read at once; most headers have 128 bytes
MAX_HEADER_BYTES = 1 << 16  # NumPy refuses headers of more than 10,000 characters
MAX_DIMENSIONS = 64

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
            start = os.read(descriptor, FIRST_BYTES)
            file_size = os.fstat(descriptor).st_size
            if (end := find_data_offset(start, Path(path))) > len(start):
                start += os.read(descriptor, end - len(start))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise make_unreadable_error(Path(path), error) from None
    header = parse_header(start, Path(path))
    if file_size < header.offset + header.byte_count:
        raise make_truncated_error(Path(path), header.offset + header.byte_count, file_size)
    return header


def find_data_offset(start: bytes, path: Path) -> int:
    """Return the offset of the data: after six bytes of magic, two of version, the header's length and the header."""
    if start[:6] != MAGIC:
        raise BadData(f"{path.name} is not a .npy file: it begins with {start[:6]!r}.")
    if len(start) < 12:
        raise BadData(f"{path.name} is cut short: it has {len(start)} bytes, fewer than a header.")
    prefix, width = (10, 2) if start[6] == 1 else (12, 4)
    end = prefix + int.from_bytes(start[8 : 8 + width], "little")
    if start[6] not in (1, 2, 3) or end > MAX_HEADER_BYTES:
        raise BadData(f"{path.name}: NumPy writes no .npy header of version {start[6]} with {end:,} bytes.")
    return end


def parse_header(start: bytes, path: Path) -> Header:
    end = find_data_offset(start, path)
    if len(start) < end:
        raise make_truncated_error(path, end, len(start))
    text = start[10 if start[6] == 1 else 12 : end].decode("latin-1")
    if match := _USUAL.fullmatch(text):
        descr, fortran, dims = match.groups()
        shape = tuple(int(dim) for dim in dims.split(",") if dim.strip())
        return _make_header(descr, fortran == "True", shape, end, path)
    return _make_header(*_parse_literal(text, path), end, path)


def _parse_literal(text: str, path: Path) -> tuple[Any, bool, tuple[int, ...]]:
    try:
        fields = ast.literal_eval(text.strip())
        descr, fortran, shape = fields["descr"], fields["fortran_order"], fields["shape"]
        if not isinstance(fortran, bool) or not isinstance(shape, tuple) or not all(type(dim) is int for dim in shape):
            raise ValueError
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError):
        raise BadData(f"{path.name}: its .npy header is damaged: {text[:80]!r}.") from None
    return descr, fortran, shape


def _make_header(descr: object, fortran: bool, shape: tuple[int, ...], end: int, path: Path) -> Header:
    name = parse_dtype(descr) if isinstance(descr, str) else None
    if isinstance(descr, str) and descr.lstrip("|<>=") == "O":
        raise BadData(
            f"{path.name} holds Python objects, which are not unpickled.",
            "Save numbers: numpy.save(file, numpy.asarray(value, dtype=float)).",
        )
    if name is None or not isinstance(descr, str):
        raise BadData(f"{path.name} holds {str(descr)[:60]!r}, which is not a type of number.")
    if len(shape) > MAX_DIMENSIONS or any(dim < 0 for dim in shape) or math.prod(shape) >= 1 << 62:
        raise BadData(f"{path.name}: no array can have the shape {str(shape)[:80]}.")
    return Header(name, shape, descr, end, fortran and len(shape) > 1)
