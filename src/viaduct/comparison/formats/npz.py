""".npz files, as numpy.savez writes them: a zip archive of .npy files.

An uncompressed member is memory-mapped. A deflated one is unpacked if its .npy header agrees with its size in the
archive, and if this size is not far larger than the packed bytes.
"""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from functools import lru_cache
from pathlib import Path

from viaduct.comparison.formats import (
    FileStamp,
    Header,
    Members,
    from_bytes,
    make_truncated_error,
    make_unreadable_error,
    map_array,
    npy,
    read_file_stamp,
)
from viaduct.comparison.records import Array
from viaduct.errors import BadData, ViaductError

MAX_MEMBERS = 1_000_000
SUFFIX = ".npy"
MAX_UNPACKED_BYTES = 1 << 26  # of a deflated member, unless it is at most MAX_UNPACKED_RATIO times its packed size
MAX_UNPACKED_RATIO = 200
# Exceptions of the standard library for a damaged archive.
ARCHIVE_ERRORS = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError, OSError, ValueError,
    IndexError,
)  # fmt: skip


def read_headers(path: Path) -> Members:
    return _read_members(path, read_file_stamp(path))


def open_array(path: Path, member: str = "") -> Array:
    info = read_archive(path).get(member + SUFFIX)
    if info is None:
        raise BadData(f"{path.name} has no member {member!r}.")
    if info.compress_type == zipfile.ZIP_STORED:
        header = _read_header(path, info)
        return map_array(path, header, locate_member(path, info))
    if info.file_size > max(MAX_UNPACKED_BYTES, MAX_UNPACKED_RATIO * info.compress_size):
        raise BadData(
            f"{path.name}[{info.filename}] is not read: {info.compress_size:,} bytes unpack to {info.file_size:,}.",
            "If it is yours, save it uncompressed: numpy.savez.",
        )
    return from_bytes(unpack_member(path, info), _read_header(path, info))


def read_archive(path: Path) -> dict[str, zipfile.ZipInfo]:
    """Return the archive's members by name, cached until the file changes."""
    return _read_archive(path, read_file_stamp(path))


@lru_cache(maxsize=8)
def _read_archive(path: Path, file_stamp: FileStamp) -> dict[str, zipfile.ZipInfo]:
    try:
        with zipfile.ZipFile(path) as opened_archive:
            infos = opened_archive.infolist()
    except ARCHIVE_ERRORS as error:
        raise BadData(f"{path.name} is not a complete zip archive ({file_stamp.size:,} bytes): {error}.") from None
    if len(infos) > MAX_MEMBERS:
        raise BadData(f"{path.name} has {len(infos):,} members; {MAX_MEMBERS:,} are read at most.")
    return {info.filename: info for info in infos if not info.filename.endswith("/")}


@lru_cache(maxsize=8)
def _read_members(path: Path, file_stamp: FileStamp) -> Members:
    members: dict[str, Header | str] = {}
    for name, info in _read_archive(path, file_stamp).items():
        try:
            members[name.removesuffix(SUFFIX)] = _read_header(path, info)
        except ViaductError as error:
            members[name.removesuffix(SUFFIX)] = error.message
    return members


def _read_header(path: Path, info: zipfile.ZipInfo) -> Header:
    label = Path(f"{path.name}[{info.filename}]")
    if not info.filename.endswith(SUFFIX):
        raise BadData(f"{label} is not a .npy file.")
    header = npy.parse_header(_read_beginning(path, info), label)
    if info.file_size < header.offset + header.byte_count:
        raise make_truncated_error(label, header.offset + header.byte_count, info.file_size)
    return header


def _read_beginning(path: Path, info: zipfile.ZipInfo) -> bytes:
    if info.compress_type == zipfile.ZIP_STORED:
        with open(path, "rb") as file:
            file.seek(locate_member(path, info))
            start = file.read(min(npy.FIRST_BYTES, info.file_size))
            return start + file.read(max(0, npy.find_data_offset(start, path) - len(start)))
    return unpack_member(path, info, npy.MAX_HEADER_BYTES)


def unpack_member(path: Path, info: zipfile.ZipInfo, most: int | None = None) -> bytes:
    """Unpack a member, or its first `most` bytes; raise BadData if it is damaged or packed in an unusual way."""
    # An LZMA member would choose the amount of memory itself.
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise BadData(f"{path.name}[{info.filename}] is neither stored nor deflated.", "numpy.savez writes no other.")
    needed, size = info.header_offset + info.compress_size, read_file_stamp(path).size
    if needed > size:  # zipfile would allocate that much
        raise make_truncated_error(path, needed, size)
    try:
        with zipfile.ZipFile(path) as opened_archive, opened_archive.open(info) as member:
            return member.read(info.file_size if most is None else most)
    except ARCHIVE_ERRORS as error:
        raise BadData(f"{path.name}[{info.filename}] cannot be unpacked: {error}.") from None


def locate_member(path: Path, info: zipfile.ZipInfo) -> int:
    """Return the offset of a stored member's data, from its local header."""
    try:
        with open(path, "rb") as file:
            file.seek(info.header_offset)
            local = file.read(30)
            file_size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise make_unreadable_error(path, error) from None
    if len(local) < 30 or local[:4] != b"PK\x03\x04" or info.flag_bits & 1:
        raise BadData(f"{path.name}[{info.filename}]: its local header in the archive is damaged or encrypted.")
    name_length, extra_length = struct.unpack("<HH", local[26:30])
    start = int(info.header_offset) + 30 + int(name_length) + int(extra_length)
    if start + info.file_size > file_size:
        raise make_truncated_error(path, start + info.file_size, file_size)
    return start
