"""TFRecord files, read and written without TensorFlow.

    a record: length (8 bytes), masked CRC-32C of the length (4), data, masked CRC-32C of the data (4); little-endian

Compressed files (gzip, zlib) are recognised by their first bytes and read as a stream; a record in them may have at
most `MAX_UNPACKED_RECORD_BYTES`. `read_records` raises `BadRecord` for damage, `iterate_records` yields it; a file that
cannot be opened raises `BadData`.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from viaduct.atomic_files import replace_file
from viaduct.data.crc32c import Buffer, crc32c
from viaduct.data.example import decode_filename
from viaduct.errors import BadData

HEADER = struct.Struct("<QI")  # length of the data, and its masked checksum
LENGTH = struct.Struct("<Q")
CHECKSUM = struct.Struct("<I")
OVERHEAD = HEADER.size + CHECKSUM.size  # bytes of a record besides its data
MAX_RECORD_BYTES = (1 << 31) - 1  # limit of protocol buffers
MAX_UNPACKED_RECORD_BYTES = 1 << 26  # limit of a record in a compressed file, which could expand to any length
MASK_DELTA = 0xA282EAD8  # constant of the format, added to its masked checksums
INFLATE_BYTES = 1 << 14  # compressed input that is read at once; deflate expands it at most 1,032 times, to 17 MB

Compression = Literal["", "gzip", "zlib"]
MakeError = Callable[[str], "BadRecord"]  # turns a reason into the error of one record


class BadRecord(BadData):
    """Error of a record that is damaged or cannot be used."""

    hides_rest = False  # True: the file goes on, but no later record can be located

    def __init__(self, path: Path, record: int, offset: int, reason: str, *hints: str, made_from: str = "") -> None:
        # `made_from` is the name of the image file that the record was made from, if known.
        self.path, self.record, self.offset, self.reason, self.made_from = path, record, offset, reason, made_from
        location = f"{path}: record {record:,} at byte {offset:,}{format_origin(made_from)}"
        super().__init__(f"{location}: {reason}.", *hints)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        arguments = (self.path, self.record, self.offset, self.reason, *self.hints)
        return partial(BadRecord, made_from=self.made_from), arguments


def format_origin(made_from: str) -> str:
    """Return a remark about `made_from`, the image file that a record was made from; empty if that is."""
    return f" (made from {made_from})" if made_from else ""


class Record(NamedTuple):
    """Record of a file."""

    number: int  # 0 for the first record of the file
    offset: int  # position of its header, in bytes
    data: memoryview


def compute_masked_crc32c(data: Buffer) -> int:
    """Return the checksum in the form that TFRecord files store."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF


def frame_record(data: Buffer) -> bytes:
    """Return a record as it is stored: header, data, checksum."""
    return b"".join((make_header(len(data)), data, CHECKSUM.pack(compute_masked_crc32c(data))))


def make_header(length: int) -> bytes:
    """Return a record's header: the length and its checksum."""
    packed = LENGTH.pack(length)
    return packed + CHECKSUM.pack(compute_masked_crc32c(packed))


def read_records(path: Path | str, *, check: bool = True) -> Iterator[memoryview]:
    """Yield the data of a file's records; raise `BadRecord` at the first damage.

    The checksums of lengths are always verified, those of the data unless `check` is False.
    """
    for record in iterate_records(path, check=check):
        if isinstance(record, BadRecord):
            raise record
        yield record.data


def iterate_records(path: Path | str, *, check: bool = True) -> Iterator[Record | BadRecord]:
    """Yield every record, or its error if it is damaged; stop if the next record cannot be located.

    The last error then has `hides_rest` True, unless the damaged record reaches the end of the file.
    """
    path = Path(path)
    number = offset = 0
    is_compressed = find_compression(path) != ""
    with open_file(path) as file:
        stream: PlainStream | InflatedStream = InflatedStream(file) if is_compressed else PlainStream(file)
        while True:
            try:
                body = read_next_record(stream, path, number, offset, check)
            except BadRecord as error:
                error.hides_rest = not stream.is_at_end
                yield error
                return
            if body is None:
                return
            data, checksum_error = body
            yield checksum_error or Record(number, offset, data)
            number, offset = number + 1, offset + len(data) + OVERHEAD


def read_next_record(
    stream: PlainStream | InflatedStream, path: Path, number: int, offset: int, check: bool
) -> tuple[memoryview, BadRecord | None] | None:
    """Return the data of the next record, and an error if their checksum is wrong; None at the end of the stream.

    `path`, `number` and `offset` are for errors. Raise `BadRecord` if no later record can be located.
    """

    def make_error(reason: str, data: Buffer = b"") -> BadRecord:
        return BadRecord(path, number, offset, reason, made_from=decode_filename(data))

    try:
        head = stream.read(HEADER.size)
        if not head:
            return None
        length = check_length(head, make_error, stream.max_record_bytes)
        body = stream.read(length + CHECKSUM.size)
    except (OSError, zlib.error) as error:
        raise make_error(f"could not be read: {error}") from error
    if len(body) < length + CHECKSUM.size:
        raise make_error(describe_truncation(length, len(body)))
    data = memoryview(body)[:length]
    return data, find_checksum_error(data, body[length:], partial(make_error, data=data)) if check else None


def check_length(head: Buffer, make_error: MakeError, limit: int = MAX_RECORD_BYTES) -> int:
    """Return the length in a header; raise `BadRecord` if the header is damaged or the length is above `limit`."""
    if len(head) < HEADER.size:
        raise make_error(f"truncated: expected a header of {HEADER.size} bytes, found {len(head)}")
    length, stored = HEADER.unpack(head)
    computed = compute_masked_crc32c(head[: LENGTH.size])
    if stored != computed:
        raise make_error(f"the checksum of its length is wrong: stored {stored:#010x}, computed {computed:#010x}")
    if length > MAX_RECORD_BYTES:
        raise make_error(f"its length is impossible: {length:,} bytes; the limit is {MAX_RECORD_BYTES:,}")
    if length > limit:
        raise make_error(f"its length is {length:,} bytes; the limit in a compressed file is {limit:,}")
    return int(length)


def describe_truncation(length: int, found: int) -> str:
    return f"truncated: expected {length:,} bytes of data and {CHECKSUM.size} of checksum, found {found:,}"


def find_checksum_error(data: memoryview, checksum: Buffer, make_error: MakeError) -> BadRecord | None:
    """Return an error if the checksum does not match the data."""
    (stored,) = CHECKSUM.unpack(checksum)
    computed = compute_masked_crc32c(data)
    if stored == computed:
        return None
    return make_error(f"the checksum of its data is wrong: stored {stored:#010x}, computed {computed:#010x}")


def open_file(path: Path) -> BinaryIO:
    """Open a file for reading; raise `BadData` if that fails."""
    try:
        return open(path, "rb")
    except OSError as error:
        raise BadData(f"{path}: could not be opened: {error.strerror or error}.") from error


def find_compression(path: Path) -> Compression:
    """Return the compression of a file, by its first bytes; empty for a plain file.

    The length of a plain file's first record may look like a magic number, so a header with a valid checksum decides.
    """
    with open_file(path) as file:
        try:
            head = file.read(HEADER.size)
        except OSError as error:
            raise BadData(f"{path}: could not be read: {error.strerror or error}.") from error
    if len(head) == HEADER.size and CHECKSUM.pack(compute_masked_crc32c(head[: LENGTH.size])) == head[LENGTH.size :]:
        return ""
    if head.startswith(b"\x1f\x8b\x08"):
        return "gzip"
    if head.startswith(b"\x78") and len(head) > 1 and int.from_bytes(head[:2], "big") % 31 == 0:
        return "zlib"
    return ""


class PlainStream:
    """Stream of an uncompressed file; a read never allocates more than the rest of the file."""

    max_record_bytes = MAX_RECORD_BYTES

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.unread_bytes = os.fstat(file.fileno()).st_size

    @property
    def is_at_end(self) -> bool:
        return self.unread_bytes == 0

    def read(self, count: int) -> bytes:
        """Return `count` bytes, or fewer at the end of the file."""
        piece = self.file.read(min(count, self.unread_bytes))
        self.unread_bytes -= len(piece)
        return piece


class InflatedStream:
    """Stream of a gzip file (with one or more members) or a zlib file, unpacked as it is read.

    Damaged compressed data raise `zlib.error`.
    """

    max_record_bytes = MAX_UNPACKED_RECORD_BYTES

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.unpacked = bytearray()
        self.inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)  # 32: detect gzip or zlib

    @property
    def is_at_end(self) -> bool:
        return self.inflate.eof and not self.unpacked

    def read(self, count: int) -> bytes:
        """Return `count` unpacked bytes, or fewer at the end of the file."""
        while len(self.unpacked) < count and self._refill():
            pass
        with memoryview(self.unpacked) as unpacked:
            piece = bytes(unpacked[:count])
        del self.unpacked[:count]
        return piece

    def _refill(self) -> bool:
        """Unpack more of the file; return False at its end."""
        packed = self.inflate.unused_data or self.file.read(INFLATE_BYTES)
        if self.inflate.eof:
            packed = packed.lstrip(b"\0")  # gzip allows padding after a member
            self.inflate = zlib.decompressobj(zlib.MAX_WBITS | 32) if packed else self.inflate
        elif not packed:
            raise zlib.error("the compressed stream ends too early")
        self.unpacked += self.inflate.decompress(packed) if packed else b""
        return bool(packed)


class RecordWriter:
    """Writer of a TFRecord file; the file appears, complete, when the `with` block ends without an error.

    with RecordWriter("train-00000-of-00001") as writer:
        writer.write(encode_example({"image/encoded": jpeg_bytes, "image/class/label": 1}))
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.count = 0
        self._stack = ExitStack()
        self._file: BinaryIO | None = None

    def __enter__(self) -> RecordWriter:
        self._file = self._stack.enter_context(replace_file(self.path))
        return self

    def write(self, data: Buffer) -> None:
        """Append a record."""
        if self._file is None:
            raise RuntimeError("a RecordWriter writes inside of its `with` block")
        if len(data) > MAX_RECORD_BYTES:
            raise BadData(
                f"{self.path}: a record of {len(data):,} bytes is too long; the limit is {MAX_RECORD_BYTES:,}."
            )
        self._file.write(frame_record(data))
        self.count += 1

    def __exit__(self, *error: Any) -> None:
        self._file = None
        self._stack.__exit__(*error)


def unpack_records(path: Path | str, to: Path | str) -> int:
    """Write the records of a compressed file to a plain one; return their number."""
    with RecordWriter(to) as writer:
        for data in read_records(path):
            writer.write(data)
    return writer.count
