"""Sorted tables of keys and values: the `.index` file of a TensorFlow checkpoint.

    a table:  data blocks, an empty meta-index block, an index block, a footer of 48 bytes
    a block:  entries, restart offsets (uint32 each), their count (uint32), compression (1 byte), masked CRC-32C (4)
    an entry: shared, added, length of the value (varints), the key's new part, the value

`shared` is the number of bytes that a key has in common with the previous key, `added` that of its new part. A handle
is the offset and the size of a block, two varints. The values of the index block are the data blocks' handles; the
footer has the handles of the meta-index and the index block. To read a table of unknown origin in bounded memory, keys
must be sorted, blocks may not overlap, and all keys together may have at most `MAX_EXPANSION` times the bytes of the
file.
"""

from __future__ import annotations

import os.path
import struct
from collections.abc import Iterable, Iterator

from viaduct.data.tfrecord import compute_masked_crc32c
from viaduct.errors import BadData
from viaduct.protobuf_wire import pack_varint, read_varint

MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
FOOTER = 48  # bytes
TRAILER = 5  # bytes after a block: compression and checksum
MAX_KEY_BYTES = 4096
MAX_EXPANSION = 8  # bytes of all keys for each byte of the file
BLOCK_BYTES = 1 << 18  # as in TensorFlow
RESTART_EVERY = 16  # entries; every 16th key is written in full, as in TensorFlow
WORD = struct.Struct("<I")
COMPRESSIONS = {1: "snappy", 2: "zlib", 4: "zstd"}

Handle = tuple[int, int]  # offset and size of a block
Entry = tuple[bytes, memoryview]  # key and value


# Reading


def read_table(data: bytes) -> Iterator[Entry]:
    """Yield every key and value in order; raise `BadData` for damage. The meta-index block is not read."""
    view = memoryview(data)
    budget = MAX_EXPANSION * len(data)  # bytes that the remaining keys may have
    previous, end = None, 0  # the previous key, and the end of the previous block
    for _, value in parse_entries(read_block(view, read_index_handle(view))):
        handle, _ = read_handle(value, 0)
        offset, size = handle
        if offset < end:
            raise BadData(f"two blocks share byte {offset:,}.")
        end = offset + size + TRAILER
        for key, content in parse_entries(read_block(view, handle)):
            if previous is not None and key <= previous:
                raise BadData(f"the name {key!r} comes after {previous!r}, but names must be sorted.")
            budget -= len(key)
            if budget < 0:
                raise BadData("its names expand to many times the size of the file.")
            previous = key
            yield key, content


def read_index_handle(view: memoryview) -> Handle:
    """Return offset and size of the index block, from the footer."""
    if len(view) < FOOTER or view[-len(MAGIC) :] != MAGIC:
        raise BadData("it does not end as the index of a checkpoint does.")
    footer = view[-FOOTER : -len(MAGIC)]
    _, after = read_handle(footer, 0)
    handle, _ = read_handle(footer, after)
    return handle


def read_handle(view: memoryview, position: int) -> tuple[Handle, int]:
    """Return the handle at a position, and the position after the handle."""
    offset, position = read_varint(view, position, len(view))
    size, position = read_varint(view, position, len(view))
    return (offset, size), position


def read_block(view: memoryview, handle: Handle) -> memoryview:
    """Return a block's entries without its restart array, after verifying the checksum."""
    offset, size = handle
    if size < WORD.size or offset + size + TRAILER > len(view) - FOOTER:
        raise BadData(f"a block of {size:,} bytes at byte {offset:,} does not fit in a file of {len(view):,}.")
    checked = view[offset : offset + size + 1]
    (stored,) = WORD.unpack_from(view, offset + size + 1)
    if compute_masked_crc32c(checked) != stored:
        raise BadData(f"the block at byte {offset:,} does not match its checksum.")
    if checked[-1]:
        name = COMPRESSIONS.get(checked[-1], f"method {checked[-1]}")
        raise BadData(f"its blocks are compressed ({name}); checkpoints are written uncompressed.")
    (restarts,) = WORD.unpack_from(checked, size - WORD.size)
    end = size - WORD.size * (restarts + 1)
    if end < 0:
        raise BadData(f"the block at byte {offset:,} claims {restarts:,} restart points in {size:,} bytes.")
    return checked[:end]


def parse_entries(block: memoryview) -> Iterator[Entry]:
    """Yield key and value of each entry of a block."""
    position, key, stop = 0, b"", len(block)
    while position < stop:
        begin = position
        shared, position = read_varint(block, position, stop)
        added, position = read_varint(block, position, stop)
        length, position = read_varint(block, position, stop)
        if shared > len(key) or shared + added > MAX_KEY_BYTES or added + length > stop - position:
            raise BadData(f"the entry at byte {begin:,} of a block is longer than the block or its name too long.")
        key = key[:shared] + bytes(block[position : position + added])
        position += added
        yield key, block[position : position + length]
        position += length


# Writing


def write_table(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Encode pairs, sorted by key, as a table."""
    table = bytearray()
    index: list[tuple[bytes, bytes]] = []
    for group in group_pairs(pairs):
        index.append((group[-1][0], append_block(table, group)))
    meta_index = append_block(table, [])
    footer = meta_index + append_block(table, index, restart_every=1)
    return bytes(table) + footer.ljust(FOOTER - len(MAGIC), b"\0") + MAGIC


def group_pairs(pairs: Iterable[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
    """Yield the pairs of each block."""
    group: list[tuple[bytes, bytes]] = []
    size = 0
    for key, value in pairs:
        group.append((key, value))
        size += len(key) + len(value)
        if size >= BLOCK_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def append_block(table: bytearray, pairs: list[tuple[bytes, bytes]], restart_every: int = RESTART_EVERY) -> bytes:
    """Append a block to the table; return its handle."""
    offset, content, restarts, previous = len(table), bytearray(), [0], b""
    for number, (key, value) in enumerate(pairs):
        shared = 0
        if number % restart_every:
            shared = len(os.path.commonprefix([previous, key]))  # noqa: RUF071  # names, not paths
        elif number:
            restarts.append(len(content))
        content += pack_varint(shared) + pack_varint(len(key) - shared) + pack_varint(len(value)) + key[shared:] + value
        previous = key
    content += struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))
    handle = pack_varint(offset) + pack_varint(len(content))
    content.append(0)  # uncompressed
    table += content + WORD.pack(compute_masked_crc32c(content))
    return handle
