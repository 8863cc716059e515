"""MindRecord files written from the published format, by code that shares nothing with the reader.

One page holds the blobs of a group of rows, another the rows' other fields; small pages, so that there are many.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HEADER, PAGE = 16384, 8192
Row = dict[str, Any]


def pack(value: Any) -> bytes:
    """msgpack, as far as rows need it."""
    if isinstance(value, dict):
        return bytes([0x80 + len(value)]) + b"".join(pack(key) + pack(value[key]) for key in sorted(value))
    if isinstance(value, str):
        text = value.encode()
        return (bytes([0xA0 + len(text)]) if len(text) < 32 else b"\xd9" + bytes([len(text)])) + text
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if 0 <= value < 128:
        return bytes([value])
    return b"\xd2" + struct.pack(">i", value)


def pack_integers(values: Sequence[int]) -> bytes:
    """All of them four bytes wide: the code for it is 2, four codes a byte."""
    codes = bytes(0b10101010 for _ in range((len(values) + 3) // 4))
    return struct.pack(">I", len(values)) + codes + b"".join(struct.pack("<i", value) for value in values)


def write_mindrecord(
    path: Path, schema: dict[str, dict[str, Any]], rows: Sequence[Row], names: Sequence[str] = (), shard: int = 0
) -> Path:
    """Write one file of a set; fields of bytes and arrays are blobs."""
    blobs = sorted(name for name, field in schema.items() if field["type"] == "bytes" or "shape" in field)
    pages, body, group = [], bytearray(), 0
    raw_groups, raw = [], bytearray()
    start = 0
    while start < len(rows):
        page, end = bytearray(), start
        while end < len(rows):
            blob = pack_blob(blobs, rows[end])
            if page and len(page) + 8 + len(blob) > PAGE:
                break
            page += struct.pack("<Q", len(blob)) + blob
            end += 1
        raw_groups.append({"id": group, "offset": len(raw)})
        for row in rows[start:end]:
            line = pack({name: value for name, value in row.items() if name not in blobs})
            raw += struct.pack("<Q", len(line)) + line
        pages.append(page_entry(len(pages), "BLOB_DATA", group, len(page), start, end, [{"id": 0, "offset": 0}]))
        body += page.ljust(PAGE, b"\0")
        group, start = group + 1, end
    if rows:
        assert len(raw) <= PAGE
        pages.append(page_entry(len(pages), "RAW_DATA", 0, len(raw), 0, 0, raw_groups))
    header = {
        "header_size": HEADER,
        "index_fields": None,
        "page": pages or None,
        "page_size": PAGE,
        "schema": [{"blob_fields": blobs, "desc": "test", "schema": schema}],
        "shard_addresses": list(names or [path.name]),
        "shard_id": shard,
        "statistics": None,
        "version": "3.0",
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    path.write_bytes((struct.pack("<Q", len(text)) + text).ljust(HEADER, b"\0") + body + raw)
    return path


def pack_blob(blobs: Sequence[str], row: Row) -> bytes:
    parts = [row[name] if isinstance(row[name], bytes) else pack_integers(row[name]) for name in blobs]
    return parts[0] if len(parts) == 1 else b"".join(struct.pack(">Q", len(part)) + part for part in parts)


def page_entry(number: int, kind: str, group: int, used: int, start: int, end: int, groups: list[Row]) -> Row:
    return {
        "page_id": number,
        "page_type": kind,
        "page_type_id": group,
        "page_size": used,
        "start_row_id": start,
        "end_row_id": end,
        "row_group_ids": groups,
        "shard_id": 0,
    }
