"""MindRecord files, MindSpore's record format, read without MindSpore.

    file = MindRecordFile("train.mindrecord0")
    file.schema, len(file), file.read_values(7), file.read_blob(7, "image")     of row 7

    a file:     length of the header (uint64), the header (JSON), padding up to header_size; then pages of page_size
    blob page:  for each row the length (uint64) and the bytes of its blob, which contains all `blob_fields` of the row
    raw page:   one or more groups of rows; for each row a length (uint64) and a msgpack map of the other fields
    a blob:     if there are several blob fields, each is preceded by its length (uint64, big-endian)
    an array:   int32 and int64 arrays in a blob are packed: count (uint32, big-endian), two bits for the width of each
                value, the values, little-endian

The header lists the pages and how many bytes of each are used. Group N of the raw pages has the rows of blob page N.
The SQLite index beside a file (`.db`) is not needed and not read.
"""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from viaduct.data.file_index import Int64s, OpenFile
from viaduct.data.tfrecord import BadRecord
from viaduct.errors import BadData
from viaduct.terminal import escape_controls

LENGTH = struct.Struct("<Q")
# A file that exceeds these limits is taken for damaged.
MAX_HEADER_BYTES, MIN_HEADER_BYTES = 128 << 20, 64
MAX_ROW_BYTES = 1 << 30
MAX_ROWS_PER_PAGE = 1 << 31
MAX_NESTING = 16  # levels of lists and maps in a row's fields
VERSIONS = ("2.0", "3.0")
ENCRYPTED = b"ENCRYPT"  # last bytes of an encrypted file
BLOB_PAGE, RAW_PAGE = "BLOB_DATA", "RAW_DATA"
INTEGERS = ("int32", "int64")


@dataclass(frozen=True)
class Field:
    """Column of the schema."""

    kind: str  # int32, int64, float32, float64, string or bytes
    shape: tuple[int, ...] | None = None  # None: a scalar

    def __str__(self) -> str:
        return self.kind if self.shape is None else f"{self.kind} array"


class MindRecordFile:
    """Schema and rows of a MindRecord file. With `stay_open=False` the file is opened again for each read.

    A file that is damaged, encrypted or no MindRecord file raises `BadData`, a damaged row `BadRecord` when it is read.
    """

    def __init__(self, path: Path | str, *, stay_open: bool = True) -> None:
        self.path = Path(path)
        self._handle: OpenFile | None = OpenFile(self.path)
        self.size = self.path.stat().st_size
        header = self._read_header()
        try:
            self._interpret(header)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
            raise self._make_format_error(f"its header is not as expected ({type(error).__name__}: {error})") from None
        if not stay_open:
            self._handle = None

    def __getstate__(self) -> dict[str, Any]:
        """Drop the open file; a pickled copy opens it for each read."""
        return {**self.__dict__, "_handle": None}

    def read(self, count: int, offset: int) -> bytes:
        """Return `count` bytes from `offset` on, or fewer at the end of the file."""
        return (self._handle or OpenFile(self.path)).read(count, offset)

    def __len__(self) -> int:
        return len(self.blob_offsets)

    def read_values(self, row: int) -> dict[str, Any]:
        """Return the fields of a row that are not blobs."""
        offset, length = int(self.raw_offsets[row]), int(self.raw_lengths[row])
        try:
            fields, _ = unpack(memoryview(self.read(length, offset)), 0)
        except (BadData, IndexError, struct.error, UnicodeDecodeError) as error:
            reason = error.message.rstrip(".") if isinstance(error, BadData) else "its fields do not end"
            raise BadRecord(self.path, row, offset, reason) from None
        if not isinstance(fields, dict):
            raise BadRecord(self.path, row, offset, "its fields are not a map")
        return fields

    def read_blob(self, row: int, field: str) -> memoryview:
        """Return the bytes of one field in the blob of a row."""
        offset, length = int(self.blob_offsets[row]), int(self.blob_lengths[row])
        data = memoryview(self.read(length, offset))
        if len(data) < length:
            raise BadRecord(self.path, row, offset, "the file has become shorter")
        if len(self.blob_fields) == 1:
            return data
        begin = 0
        for name in self.blob_fields:
            size = int.from_bytes(data[begin : begin + 8], "big")
            begin += 8
            if begin + size > length:
                raise BadRecord(self.path, row, offset, f"its field {name!r} does not end within the row")
            if name == field:
                return data[begin : begin + size]
            begin += size
        raise BadRecord(self.path, row, offset, f"it has no field {field!r}")

    def read_integer(self, row: int, field: str) -> int:
        """Return an integer field of a row, stored as a number or as an array of one; raise `BadRecord` otherwise."""
        if field in self.blob_fields:
            try:
                packed = unpack_integers(self.read_blob(row, field))
            except BadRecord:
                raise
            except BadData as error:
                raise self.make_error(row, f"in its field {field!r} {error.message.rstrip('.')}") from None
            if len(packed) != 1:
                raise self.make_error(row, f"its field {field!r} has {len(packed)} values, expected 1")
            return packed[0]
        value = self.read_values(row).get(field)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.make_error(row, f"its field {field!r} is {str(value)[:40]!r}, expected a whole number")
        return value

    def make_error(self, row: int, reason: str, *hints: str, made_from: str = "") -> BadRecord:
        """Return an error that names the file, the row and the offset of its blob."""
        return BadRecord(self.path, row, int(self.blob_offsets[row]), reason, *hints, made_from=made_from)

    # The header

    def _read_header(self) -> dict[str, Any]:
        (length,) = LENGTH.unpack(self.read(LENGTH.size, 0).ljust(LENGTH.size, b"\0"))
        if self.size > len(ENCRYPTED) and self.read(len(ENCRYPTED), self.size - len(ENCRYPTED)) == ENCRYPTED:
            raise BadData(
                f"{self.path} is an encrypted MindRecord file; it cannot be read without its key.",
                "Write it again with MindSpore and the key, without set_enc_key.",
            )
        if not MIN_HEADER_BYTES <= length <= MAX_HEADER_BYTES:
            raise BadData(f"{self.path} is not a MindRecord file: its header claims {length:,} bytes.")
        if length + LENGTH.size > self.size:
            raise self._make_truncation_error(f"its header has {length:,} bytes")
        try:
            header = json.loads(self.read(length, LENGTH.size))
        except (ValueError, RecursionError) as error:
            raise self._make_format_error(f"its header is not JSON ({error})") from None
        if not isinstance(header, dict):
            raise self._make_format_error("its header is not a JSON object")
        return header

    def _interpret(self, header: dict[str, Any]) -> None:
        """Set the schema, the names of all files of the set and the positions of all rows, as the header says."""
        version = header["version"]
        if version not in VERSIONS:
            raise BadData(f"{self.path} is a MindRecord file of version {version!r}; read: {', '.join(VERSIONS)}.")
        (schema,) = header["schema"]
        self.schema = {str(name): make_field(entry) for name, entry in schema["schema"].items()}
        self.blob_fields = [str(name) for name in schema["blob_fields"] or []]
        self.shard_names = [str(name) for name in header["shard_addresses"] or []]
        self.shard = int(header["shard_id"])
        self._header_size, self._page_size = int(header["header_size"]), int(header["page_size"])
        if self._header_size < 0 or self._page_size <= 0:
            raise ValueError("sizes of header and pages")
        blobs, raws = self._list_pages(header["page"] or [])
        if blobs.keys() != raws.keys():
            raise self._make_format_error("its pages of values and of blobs do not match")
        groups = [self._locate_rows(group, *blobs[group], raws[group]) for group in sorted(blobs)]
        columns = np.concatenate([np.empty((0, 4), np.int64), *groups]).T
        self.blob_offsets, self.blob_lengths, self.raw_offsets, self.raw_lengths = columns

    def _list_pages(self, pages: list[dict[str, Any]]) -> tuple[dict[int, tuple[range, int]], dict[int, range]]:
        """Return two dicts by number of group: bytes and row count of the blob page, and bytes in a raw page."""
        blobs: dict[int, tuple[range, int]] = {}
        raws: dict[int, range] = {}
        for page in pages:
            begin = self._header_size + self._page_size * int(page["page_id"])
            used = int(page["page_size"])
            if used < 0 or begin < 0 or used > self._page_size:
                raise ValueError("the size of a page")
            if used and begin + used > self.size:
                raise self._make_truncation_error(f"page {page['page_id']} ends at byte {begin + used:,}")
            if page["page_type"] == BLOB_PAGE:
                rows = int(page["end_row_id"]) - int(page["start_row_id"])
                if not 0 <= rows <= MAX_ROWS_PER_PAGE or rows * LENGTH.size > used:
                    raise ValueError("the rows of a page")
                blobs[int(page["page_type_id"])] = range(begin, begin + used), rows
            elif page["page_type"] == RAW_PAGE:
                groups = [(int(group["id"]), int(group["offset"])) for group in page["row_group_ids"]]
                ends = [offset for _, offset in groups[1:]] + [used]
                for (group, offset), end in zip(groups, ends, strict=True):
                    raws[group] = range(begin + offset, begin + end)
        return blobs, raws

    def _locate_rows(self, group: int, blob_bytes: range, count: int, raw_bytes: range) -> Int64s:
        """Return blob offset, blob length, raw offset and raw length of each of the `count` rows of a group."""
        blobs = self._locate_items(f"blob page {group}", blob_bytes, count)
        raws = self._locate_items(f"group {group} of rows", raw_bytes, count)
        return np.concatenate([blobs, raws], axis=1)

    def _locate_items(self, label: str, extent: range, count: int) -> Int64s:
        """Return offset and length of the `count` items that fill these bytes of the file; `label` is for messages."""
        items = np.empty((count, 2), dtype=np.int64)
        position = extent.start
        for row in range(count):
            header = self.read(LENGTH.size, position)
            # At the end of the file the length is missing: the number in its place is refused below.
            length = LENGTH.unpack(header)[0] if len(header) == LENGTH.size else MAX_ROW_BYTES + 1
            position += LENGTH.size
            if length > MAX_ROW_BYTES or position + length > extent.stop:
                raise self._make_format_error(f"row {row} of {label} does not end within its page")
            items[row] = position, length
            position += length
        if position != extent.stop:
            found = position - extent.start
            raise self._make_format_error(f"{label} has {len(extent):,} bytes, its {count:,} rows have {found:,}")
        return items

    def _make_truncation_error(self, reason: str) -> BadData:
        return BadData(
            f"{self.path} was cut short: {reason}, and the file has {self.size:,} bytes.", "Copy or write it again."
        )

    def _make_format_error(self, reason: str) -> BadData:
        return BadData(
            f"{self.path} is a damaged MindRecord file: {escape_controls(reason)}.", "Copy or write it again."
        )


def make_field(entry: dict[str, Any]) -> Field:
    shape = entry.get("shape")
    return Field(str(entry["type"]), None if shape is None else tuple(int(axis) for axis in shape))


def is_mindrecord(path: Path) -> bool:
    """Return True if a file begins as a MindRecord file does, or has the name and the end of an encrypted one."""
    try:
        with path.open("rb") as file:
            start = file.read(LENGTH.size + 16)
            if len(start) < LENGTH.size + 16:
                return False
            file.seek(-len(ENCRYPTED), os.SEEK_END)
            if "mindrecord" in path.name and file.read() == ENCRYPTED:
                return True
    except OSError:
        return False
    (length,) = LENGTH.unpack_from(start)
    return MIN_HEADER_BYTES <= length <= MAX_HEADER_BYTES and start[LENGTH.size :].startswith(b'{"header_size"')


# Values


def unpack(data: memoryview, position: int, depth: int = 0) -> tuple[Any, int]:
    """Decode one msgpack value, within `depth` lists and maps, and return it with the position after it."""
    if depth > MAX_NESTING:
        raise BadData("its fields are nested too deeply.")
    code = data[position]
    position += 1
    if code < 0x80 or code >= 0xE0:  # a number from -32 to 127
        return (code if code < 0x80 else code - 0x100), position
    if code in CONSTANTS:
        return CONSTANTS[code], position
    if code in NUMBERS:
        form = NUMBERS[code]
        return form.unpack_from(data, position)[0], position + form.size
    # From here on a code either contains a count, or is followed by one of 1, 2 or 4 bytes.
    if code < 0x90 or code in (0xDE, 0xDF):  # a map
        count, position = (code & 0x0F, position) if code < 0x90 else read_count(data, position, 2 << (code - 0xDE))
        values, position = unpack_several(data, position, 2 * count, depth)
        if not all(isinstance(key, str) for key in values[::2]):
            raise BadData("its fields have no names.")
        return dict(zip(values[::2], values[1::2], strict=True)), position
    if code < 0xA0 or code in (0xDC, 0xDD):  # a list
        count, position = (code & 0x0F, position) if code < 0xA0 else read_count(data, position, 2 << (code - 0xDC))
        return unpack_several(data, position, count, depth)
    if code < 0xC0 or 0xD9 <= code <= 0xDB:  # a string
        count, position = (code & 0x1F, position) if code < 0xC0 else read_count(data, position, 1 << (code - 0xD9))
        return str(take_bytes(data, position, count), "utf-8"), position + count
    if 0xC4 <= code <= 0xC6:  # bytes
        count, position = read_count(data, position, 1 << (code - 0xC4))
        return bytes(take_bytes(data, position, count)), position + count
    raise BadData(f"its fields hold a value of the unknown kind 0x{code:02x}.")


# The codes of msgpack that precede a constant, or a number of fixed size.
CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
NUMBERS = {
    code: struct.Struct(">" + letter)
    for code, letter in zip((0xCA, 0xCB, *range(0xCC, 0xD4)), "fdBHIQbhiq", strict=True)
}


def read_count(data: memoryview, position: int, size: int) -> tuple[int, int]:
    """Read a big-endian number, and return the position after it."""
    return int.from_bytes(take_bytes(data, position, size), "big"), position + size


def take_bytes(data: memoryview, position: int, count: int) -> memoryview:
    """Return `count` bytes; raise `BadData` if there are fewer."""
    if position + count > len(data):
        raise BadData("its fields do not end.")
    return data[position : position + count]


def unpack_several(data: memoryview, position: int, count: int, depth: int) -> tuple[list[Any], int]:
    """Decode `count` values one level deeper, and return them with the position after them."""
    values = []
    for _ in range(count):
        value, position = unpack(data, position, depth + 1)
        values.append(value)
    return values, position


def unpack_integers(data: memoryview) -> list[int]:
    """Decode a packed array of whole numbers: count, two bits for each value's width (1, 2, 4 or 8 bytes), values."""
    truncated = BadData("an array of whole numbers does not end.")
    if len(data) < 4:
        raise truncated
    count = int.from_bytes(data[:4], "big")
    position = 4 + (count + 3) // 4
    if position > len(data):
        raise truncated
    numbers = []
    for index in range(count):
        width = 1 << (data[4 + index // 4] >> (2 * (3 - index % 4)) & 3)
        if position + width > len(data):
            raise truncated
        numbers.append(int.from_bytes(data[position : position + width], "little", signed=True))
        position += width
    return numbers
