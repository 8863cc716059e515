"""Index of one TFRecord file: offset and length of each record.

Building the index reads and verifies all headers. It is stored beside the file or, if the folder is not writable, in
$XDG_CACHE_HOME/viaduct/index, usually ~/.cache/viaduct/index; labels are added when they are first read. It can also be
written in DALI's text form, with a line "offset size" for each record.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from viaduct.atomic_files import replace_file, write_file
from viaduct.data.tfrecord import (
    HEADER,
    OVERHEAD,
    BadRecord,
    check_length,
    describe_truncation,
    find_compression,
)
from viaduct.errors import BadData
from viaduct.path_errors import refuse_special_file

Int64s = npt.NDArray[np.int64]

VERSION = 2  # format of the stored table
UNKNOWN_LABEL = np.iinfo(np.int64).min  # in place of a label that was not read yet
CORRUPT_LABEL = UNKNOWN_LABEL + 1  # in place of a label that cannot be read
SUFFIX = ".idx.npy"  # of a stored index
# The header of NumPy's format 1.0 for a table of int64, which `store_table` writes before the numbers.
TABLE_HEADER_BYTES = 128
TABLE_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00\x76\x00"
    rb"\{'descr': '<i8', 'fortran_order': False, 'shape': \(([0-9]{1,2}), ([0-9]{1,12})\), \} *\n"
)
HEADER_READ_BYTES = 1 << 13  # read at once from a header on: of small records, the headers of several
CANNOT_CONTINUE = (
    "The records after it in the file cannot be found, so --on-bad-record skip does not help.",
    "Copy the file again; or delete it and run the same `viaduct data build` again, which writes what is missing.",
)


class FileIndex(NamedTuple):
    """Positions of the records of one file. Offsets are those of the headers, lengths those of the data."""

    offsets: Int64s
    lengths: Int64s
    labels: Int64s | None = None  # None until all labels have been read

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return int(self.offsets[-1] + self.lengths[-1]) + OVERHEAD if len(self.offsets) else 0


def load_or_build_index(path: Path) -> FileIndex:
    """Return the stored index of a file if it is up to date, otherwise build and store a new one."""
    return load_index(path) or rebuild_index(path)


def load_index(path: Path) -> FileIndex | None:
    """Return the stored index of a file, memory-mapped.

    None if no stored index is of the file's size and modification time, and in the present format without gaps.
    """
    size, modified = read_size_and_time(path)
    for stored_path in list_index_paths(path):
        table = load_table(stored_path)
        if table is None or len(table) != 3 or table[:, :1].ravel().tolist() != [size, modified, VERSION]:
            continue
        offsets, lengths, labels = table[:, 1:]
        if is_gapless(offsets, lengths, size):
            return FileIndex(offsets, lengths, None if (labels == UNKNOWN_LABEL).any() else labels)
    return None


def is_gapless(offsets: Int64s, lengths: Int64s, size: int) -> bool:
    """Return True if the records of an index cover the whole file of `size` bytes without gaps."""
    ends = offsets + lengths + OVERHEAD
    begins = np.append(offsets, size)
    return bool(begins[0] == 0 and np.array_equal(begins[1:], ends) and (not len(lengths) or lengths.min() >= 0))


def rebuild_index(path: Path) -> FileIndex:
    """Build and store the index of a file."""
    size_and_time = read_size_and_time(path)
    index = build_index(path)
    store_index(path, size_and_time, index)
    return index


def store_index(path: Path, size_and_time: tuple[int, int], index: FileIndex) -> None:
    """Store an index, with the size and modification time that the file had before the index was built.

    If the file changes while the index is built, these differ from the file's, and the index will not be loaded.
    """
    # Rows: offsets, lengths, labels. The first column is size, modification time and VERSION.
    table = np.full((3, 1 + len(index.offsets)), UNKNOWN_LABEL, dtype=np.int64)
    table[:, 0] = *size_and_time, VERSION
    table[0, 1:], table[1, 1:] = index.offsets, index.lengths
    if index.labels is not None:
        table[2, 1:] = index.labels
    store_table(path, table)


def read_size_and_time(path: Path) -> tuple[int, int]:
    """Return a file's size in bytes and modification time in nanoseconds."""
    try:
        status = path.stat()
    except OSError as error:
        raise BadData(f"{path}: could not be opened: {error.strerror}.") from error
    return status.st_size, status.st_mtime_ns


def build_index(path: Path) -> FileIndex:
    """Build an index from the headers; raise `BadRecord` if one is damaged or the file ends too early."""
    refuse_compressed(path)
    handle = OpenFile(path)
    size = os.fstat(handle.descriptor).st_size
    offsets, lengths = list[int](), list[int]()
    position, begin, window = 0, 0, b""  # `window` holds the bytes that were read last; they begin at `begin`

    def make_error(reason: str) -> BadRecord:
        return BadRecord(path, len(offsets), position, reason, *CANNOT_CONTINUE)

    while position < size:
        if position + HEADER.size > begin + len(window):
            begin, window = position, handle.read(HEADER_READ_BYTES, position)
        length = check_length(window[position - begin : position - begin + HEADER.size], make_error)
        if position + length + OVERHEAD > size:
            raise make_error(describe_truncation(length, size - position - HEADER.size))
        offsets.append(position)
        lengths.append(length)
        position += length + OVERHEAD
    return FileIndex(np.array(offsets, dtype=np.int64), np.array(lengths, dtype=np.int64))


def refuse_compressed(path: Path) -> None:
    """Raise `BadData` if the file is compressed."""
    kind = find_compression(path)
    if kind:
        raise BadData(
            f"{path}: it is compressed ({kind}), and a compressed file can only be read from its beginning.",
            "Unpack it first: viaduct.data.tfrecord.unpack_records(file, to) writes a plain one.",
        )


class OpenFile:
    """Open file that several threads can read at any offset; it is closed with the last reference to this object."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = -1
        try:
            self.descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise BadData(f"{path}: could not be opened: {error.strerror}.") from error

    def read(self, count: int, offset: int) -> bytes:
        """Return `count` bytes from `offset` on, or fewer at the end of the file."""
        try:
            return os.pread(self.descriptor, count, offset)
        except OSError as error:
            raise BadData(f"{self.path}: could not be read at byte {offset:,}: {error.strerror}.") from error

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


# Stored indices: a table of int64 in NumPy's format for each record file


def list_index_paths(file: Path) -> tuple[Path, Path]:
    """Return the two possible paths of an index: beside the file; in the cache, named by a digest of its path."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(os.fsencode(file.resolve())).hexdigest()[:16]
    return file.with_name(file.name + SUFFIX), cache / "viaduct" / "index" / f"{digest}-{file.name}{SUFFIX}"


def load_table(path: Path) -> Int64s | None:
    """Return a stored table, memory-mapped; None if there is none, or the file was not written by `store_table`.

    The header is matched here, because `np.load` evaluates it as Python and raises arbitrary errors if it is damaged.
    """
    try:
        refuse_special_file(path)
        with path.open("rb") as file:
            size, head = os.fstat(file.fileno()).st_size, file.read(TABLE_HEADER_BYTES)
    except OSError:
        return None
    match = TABLE_HEADER.fullmatch(head)
    if match is None or size != TABLE_HEADER_BYTES + 8 * int(match[1]) * int(match[2]):
        return None
    try:
        return np.memmap(path, np.int64, "r", TABLE_HEADER_BYTES, (int(match[1]), int(match[2])))
    except (OSError, ValueError):  # the file has changed since
        return None


def store_table(file: Path, table: Int64s) -> None:
    """Store the table at the first of its two paths that is writable; do nothing if none is.

    Processes may store the same one at the same time, because each renames a complete file into place.
    """
    for path in list_index_paths(file):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replace_file(path, durable=False) as opened:
                np.save(opened, table)
        except OSError:
            continue
        return


def write_dali_index(path: Path, index: FileIndex, folder: Path | None = None) -> Path:
    """Write offset and total size of each record to FILE.idx, as DALI's tfrecord2idx does; return the path.

    It is written beside the file, or into `folder`.
    """
    index_path = (folder or path.parent) / f"{path.name}.idx"
    sizes = index.lengths + OVERHEAD
    lines = (f"{offset} {size}\n" for offset, size in zip(index.offsets.tolist(), sizes.tolist(), strict=True))
    try:
        index_path.parent.mkdir(parents=True, exist_ok=True)
        write_file(index_path, "".join(lines).encode())
    except OSError as error:
        raise BadData(
            f"{index_path}: could not be written: {error.strerror}.", "Name another folder: --dali-folder DIR."
        ) from error
    return index_path
