"""Sorted tables: what was written is read again, and what nobody wrote is refused."""

from __future__ import annotations

import struct

import pytest

from viaduct.data.tfrecord import compute_masked_crc32c
from viaduct.errors import BadData
from viaduct.protobuf_wire import pack_varint
from viaduct.weights import table
from viaduct.weights.table import read_table, write_table


def pairs(count: int) -> list[tuple[bytes, bytes]]:
    names = (f"scope/layer_{number:06d}/kernel".encode() for number in range(count))
    return [(b"", b"head"), *((name, b"v" * (handle_index % 7)) for handle_index, name in enumerate(names))]


def contents(data: bytes) -> list[tuple[bytes, bytes]]:
    return [(key, bytes(value)) for key, value in read_table(data)]


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 100, 30_000])
def test_written_tables_are_read_unchanged(count: int) -> None:
    assert contents(write_table(pairs(count))) == pairs(count)


def test_names_share_prefixes() -> None:
    written = write_table(pairs(1000))
    assert len(written) < 1000 * 16


def block(content: bytes, compression: int = 0, restarts: bytes = struct.pack("<2I", 0, 1)) -> bytes:
    body = content + restarts + bytes([compression])
    return body + struct.pack("<I", compute_masked_crc32c(body))


def handle(offset: int, size: int) -> bytes:
    return pack_varint(offset) + pack_varint(size - table.TRAILER)


def entry(shared: int, key: bytes, value: bytes) -> bytes:
    return pack_varint(shared) + pack_varint(len(key)) + pack_varint(len(value)) + key + value


def make_table(*data_blocks: bytes, listed: list[bytes] | None = None) -> bytes:
    """A table of these blocks with right checksums; `listed` are the handles in its index."""
    body, handles = b"", []
    for data in data_blocks:
        handles.append(handle(len(body), len(data)))
        body += data
    entries = [entry(0, bytes([65 + number]), handle_index) for number, handle_index in enumerate(listed or handles)]
    index = block(b"".join(entries))
    footer = handle(0, table.TRAILER + 4) + handle(len(body), len(index))
    return body + index + footer.ljust(table.FOOTER - 8, b"\0") + table.MAGIC


def test_the_builder_of_these_tests_builds_tables() -> None:
    assert contents(make_table(block(entry(0, b"a", b"1") + entry(1, b"b", b"2")))) == [(b"a", b"1"), (b"ab", b"2")]


ONE = block(entry(0, b"a", b"1"))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "does not end"),
        (write_table([])[:-1], "does not end"),
        (make_table(block(entry(0, b"a", b"1"), compression=1)), "compressed .snappy."),
        (make_table(block(entry(0, b"a", b"1"), compression=9)), "compressed .method 9."),
        (make_table(block(entry(1, b"a", b"1"))), "longer than the block"),
        (make_table(block(pack_varint(0) + pack_varint(1) + pack_varint(1 << 40) + b"a")), "longer than the block"),
        (make_table(block(entry(0, b"k" * 5000, b""))), "too long"),
        (make_table(block(entry(0, b"b", b"1") + entry(0, b"a", b"1"))), "must be sorted"),
        (make_table(block(entry(0, b"a", b"1") + entry(1, b"", b"1"))), "must be sorted"),
        (make_table(ONE, ONE), "must be sorted"),
        (make_table(ONE, listed=[handle(0, len(ONE)), handle(0, len(ONE))]), "share byte 0"),
        (make_table(ONE, listed=[handle(1 << 50, len(ONE))]), "does not fit"),
        (make_table(ONE, listed=[handle(0, 1 << 50)]), "does not fit"),
        (make_table(ONE, listed=[handle(0, table.TRAILER)]), "does not fit"),
        (make_table(ONE, listed=[b"\x80"]), "does not end"),
        (make_table(block(b"", restarts=struct.pack("<2I", 0, 1 << 30))), "restart points"),
    ],
)
def test_damaged_tables_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(BadData, match=reason):
        contents(data)


def test_every_flipped_bit_of_the_entries_is_found() -> None:
    written = write_table(pairs(3))
    for handle_index in range(60):  # within the first block
        damaged = bytearray(written)
        damaged[handle_index] ^= 1 << handle_index % 8
        with pytest.raises(BadData, match="checksum"):
            contents(bytes(damaged))


def test_names_that_expand_without_end_are_refused() -> None:
    long = b"k" * 4000
    entries = [entry(0, long, b"")]
    entries += [entry(4000, struct.pack(">H", number), b"") for number in range(5000)]
    with pytest.raises(BadData, match="expand"):
        contents(make_table(block(b"".join(entries))))
