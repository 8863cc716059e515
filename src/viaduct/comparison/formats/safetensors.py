""".safetensors files: eight bytes with the header's length, the header in JSON, then the tensors.

The safetensors library is not used: it needs PyTorch or copies the tensor, and has no bfloat16 for NumPy.
"""

from __future__ import annotations

import json
import math
from functools import lru_cache
from pathlib import Path
from typing import Any

from viaduct.comparison.formats import (
    FileStamp,
    Header,
    Members,
    make_truncated_error,
    make_unreadable_error,
    map_array,
    parse_dtype,
    read_file_stamp,
)
from viaduct.comparison.records import Array
from viaduct.errors import BadData

MAX_HEADER_BYTES = 100_000_000  # the library's limit
DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<V2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1", "C64": "<c8",
}  # fmt: skip


def read_headers(path: Path) -> Members:
    return _read_members(path, read_file_stamp(path))


def open_array(path: Path, member: str = "") -> Array:
    header = read_headers(path).get(member)
    if header is None:
        raise BadData(f"{path.name} has no tensor {member!r}.")
    if isinstance(header, str):
        raise BadData(header)
    return map_array(path, header)


@lru_cache(maxsize=16)
def _read_members(path: Path, file_stamp: FileStamp) -> Members:
    start, entries = _read_entries(path, file_stamp.size)
    return {name: _read_header(f"{path.name}[{name}]", entries[name], start, file_stamp.size) for name in entries}


def _read_entries(path: Path, size: int) -> tuple[int, dict[str, Any]]:
    """Return the position of the first tensor's bytes, and the header's entries by name."""
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > MAX_HEADER_BYTES:
                raise BadData(f"{path.name} is not a .safetensors file: {size:,} bytes, a header of {length:,}.")
            if size < 8 + length:
                raise make_truncated_error(path, 8 + length, size)
            entries = json.loads(file.read(length))
    except OSError as error:
        raise make_unreadable_error(path, error) from None
    except (ValueError, RecursionError):
        raise BadData(f"{path.name}: its .safetensors header is not JSON.") from None
    if not isinstance(entries, dict):
        raise BadData(f"{path.name}: its .safetensors header is not a JSON object.")
    entries.pop("__metadata__", None)
    return 8 + length, entries


def _read_header(label: str, entry: Any, start: int, size: int) -> Header | str:
    """Return a tensor's header, or why it cannot be read."""
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not all(type(number) is int and 0 <= number < 1 << 62 for number in (*shape, begin, end)):
            raise ValueError
    except (TypeError, KeyError, ValueError):
        return f"{label}: its entry in the header is damaged: {str(entry)[:80]}."
    if not isinstance(dtype, str) or dtype not in DTYPES:
        return f"{label} is of the type {str(dtype)[:20]!r}, which cannot be compared."
    header = Header(parse_dtype(DTYPES[dtype]) or "", tuple(shape), DTYPES[dtype], start + begin)
    if end - begin != header.byte_count or math.prod(shape) >= 1 << 62:
        return f"{label}: {end - begin:,} bytes for {dtype} of the shape {shape}, which needs {header.byte_count:,}."
    if start + end > size:
        return str(make_truncated_error(Path(label), start + end, size))
    return header
