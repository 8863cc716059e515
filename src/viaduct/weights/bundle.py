"""TensorFlow V2 checkpoints ("tensor bundles"), read and written without TensorFlow.

    with Bundle("train/model.ckpt-5") as stored:
        stored.entries["global_step"].shape, stored.read("global_step")
    write_bundle("out/model.ckpt-5", {"dense/bias": tensor})

PREFIX.index is a table (table.py) from names to protobuf messages with the fields 1 dtype, 2 shape, 3 shard, 4 offset,
5 size, 6 masked CRC-32C of the values, 7 slices. The files PREFIX.data-0000i-of-0000n, called shards, have the values,
raw and little-endian. Opening a checkpoint reads only the index; values are read one variable at a time.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from viaduct.atomic_files import replace_file, write_file
from viaduct.data.tfrecord import compute_masked_crc32c
from viaduct.errors import BadData, BadValue, UnknownName
from viaduct.protobuf_wire import (
    BYTES,
    FIXED32,
    VARINT,
    encode_bytes,
    encode_number,
    iterate_fields,
    pack_varint,
    read_varint,
)
from viaduct.weights.checkpoint import Entry, FrameworkCheckpoint, count_bytes, explain_write_errors, get_dtype_name
from viaduct.weights.locate import find_prefix, record_latest
from viaduct.weights.table import read_table, write_table

if TYPE_CHECKING:
    from torch import Tensor, nn

    from viaduct.models.links import Link
    from viaduct.weights.recognise import Guess

# Limits above which an index is refused. That of AmoebaNet's 1,700 variables has 90,000 bytes.
MAX_INDEX_BYTES = 16 << 20
MAX_VARIABLES = 100_000
MAX_AXES = 254  # TensorFlow's own limit
VERSION = 1  # of the format

# TensorFlow's dtype numbers and torch's names. Variables of OTHER_DTYPES are listed but cannot be read.
DTYPES = {1: "float32", 2: "float64", 3: "int32", 4: "uint8", 9: "int64", 10: "bool", 14: "bfloat16", 19: "float16"}
OTHER_DTYPES = {
    5: "int16",
    6: "int8",
    7: "string",
    8: "complex64",
    11: "qint8",
    12: "quint8",
    13: "qint32",
    17: "uint16",
    18: "complex128",
    20: "resource",
    21: "variant",
    22: "uint32",
    23: "uint64",
}
NUMBERS = {dtype: number for number, dtype in DTYPES.items()}


@dataclass(frozen=True)
class Variable(Entry):
    """Index entry of one variable: type, shape, and the position of its values."""

    dtype_number: int  # TensorFlow's number of the type
    shard: int  # number of the data file
    offset: int  # in the data file, in bytes
    checksum: int  # masked CRC-32C of the values
    sliced: bool = False  # True for a partitioned variable, whose values are in entries of its slices


class Bundle(FrameworkCheckpoint):
    """TensorFlow checkpoint opened for reading; `path` is its folder, its prefix, or one of its files."""

    def __init__(self, path: Path | str) -> None:
        self.prefix = find_prefix(Path(path))
        self.index = self.prefix.with_name(self.prefix.name + ".index")
        self.shards = 0
        self.entries: dict[str, Variable] = {}
        self._files: dict[int, BufferedReader] = {}  # open data files by shard
        try:
            self._read_index()
        except BadData as error:
            raise BadData(f"{self.index}: not a usable checkpoint index: {error.message}", *error.hints) from None

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def read_bytes(self, name: str) -> bytearray:
        if name not in self.entries:
            raise UnknownName(f"variable in {self.prefix}", name, self.entries)
        stored = self.entries[name]
        self._refuse_unreadable(name, stored)
        file, path = self._open_shard(stored.shard)
        available = os.fstat(file.fileno()).st_size
        if stored.offset + stored.size > available:
            extent = f"{stored.size:,} bytes at byte {stored.offset:,}"
            raise BadData(f"{path}: {name} should be {extent}, but the file has {available:,} bytes: it was cut short.")
        file.seek(stored.offset)
        content = bytearray(stored.size)
        if file.readinto(content) != stored.size or compute_masked_crc32c(content) != stored.checksum:
            raise BadData(f"{path}: the values of {name} do not match their checksum.")
        return content

    def list_slot_names(self, slot: str, variable: str) -> list[str]:
        return [f"{variable}/{slot}"]

    def list_layouts(self, model: nn.Module) -> dict[str, list[Link]]:
        from viaduct.weights.names import list_tf_layouts

        return list_tf_layouts(model)

    def guess_networks(self) -> list[Guess]:
        from viaduct.weights import recognise

        return recognise.recognise_tensorflow({name: stored.shape for name, stored in self.entries.items()})

    def describe_shortages(self) -> Iterator[str]:
        """Yield a line for each data file that is missing or shorter than the index requires."""
        ends: dict[int, list[int]] = {}
        for stored in self.entries.values():
            if stored.shard < self.shards and not stored.sliced:
                ends.setdefault(stored.shard, []).append(stored.offset + stored.size)
        for shard, needed in sorted(ends.items()):
            path = locate_shard(self.prefix, shard, self.shards)
            available = path.stat().st_size if path.is_file() else 0
            lost = sum(end > available for end in needed)
            if lost:
                length = f"{available:,} bytes, expected {max(needed):,}"
                problem = f"was cut short ({length})" if path.is_file() else "is missing"
                yield f"{path} {problem}: {lost:,} of its {len(needed):,} variables cannot be read"

    def _read_index(self) -> None:
        """Fill `entries`; raise `BadData` with a message that continues "not a usable checkpoint index:"."""
        size = self.index.stat().st_size
        if size > MAX_INDEX_BYTES:
            raise BadData(f"it has {size:,} bytes; the limit is {MAX_INDEX_BYTES:,}.")
        for number, (key, value) in enumerate(read_table(self.index.read_bytes())):
            if number > MAX_VARIABLES:
                raise BadData(f"it names more than {MAX_VARIABLES:,} variables.")
            if number == 0:  # the header has the empty name, which sorts first
                if key != b"":
                    raise BadData("it has no header.")
                self.shards = read_header(value)
            elif not key.startswith(b"\0"):  # \0: a slice; its partitioned variable has its own entry
                self.entries[key.decode("utf-8", "backslashreplace")] = read_entry(value)
        if not self.shards:
            raise BadData("it has no header.")
        self._refuse_shared_bytes()

    def _refuse_shared_bytes(self) -> None:
        """Raise `BadData` if variables share bytes: a small file could then claim any number of values."""
        extents = sorted(
            (stored.shard, stored.offset, stored.size, name) for name, stored in self.entries.items() if stored.size
        )
        for (shard, offset, size, name), (next_shard, next_offset, _, next_name) in pairwise(extents):
            if shard == next_shard and next_offset < offset + size:
                raise BadData(f"{name} and {next_name} share the bytes from {next_offset:,} of shard {shard}.")

    def _refuse_unreadable(self, name: str, stored: Variable) -> None:
        """Raise `BadData` if the index entry of a variable shows that its values cannot be read."""
        if stored.sliced:
            raise BadData(f"{self.prefix}: {name} is partitioned; its slices are not put together here.")
        if stored.dtype_number not in DTYPES:
            known = ", ".join(sorted(DTYPES.values()))
            raise BadData(
                f"{self.prefix}: {name} holds {stored.dtype} values, which cannot be read.", f"Readable types: {known}."
            )
        expected = stored.count * count_bytes(DTYPES[stored.dtype_number])
        if expected != stored.size:
            variable = f"{name} of shape {stored.shape} and type {stored.dtype}"
            raise BadData(f"{self.index}: {variable} has {stored.size:,} bytes, expected {expected:,}.")
        if stored.shard >= self.shards:
            raise BadData(f"{self.index}: {name} lies in shard {stored.shard} of {self.shards}.")

    def _open_shard(self, number: int) -> tuple[BufferedReader, Path]:
        """Return a data file, open, and its path; raise `BadData` if it is missing."""
        # The path is computed from the prefix, so an index cannot refer to other files.
        path = locate_shard(self.prefix, number, self.shards)
        if number not in self._files:
            if not path.is_file():
                raise BadData(f"{path} is missing; the checkpoint {self.prefix} has its values there.")
            self._files[number] = path.open("rb")
        return self._files[number], path


def locate_shard(prefix: Path, number: int, count: int) -> Path:
    return prefix.with_name(f"{prefix.name}.data-{number:05d}-of-{count:05d}")


def read_header(value: memoryview) -> int:
    """Return the number of shards; raise `BadData` for a checkpoint that this reader cannot read."""
    shards = endianness = oldest_reader = 0
    for number, wire, begin, end in iterate_fields(value, 0, len(value)):
        if (number, wire) == (1, VARINT):
            shards = read_varint(value, begin, end)[0]
        elif (number, wire) == (2, VARINT):
            endianness = read_varint(value, begin, end)[0]
        elif (number, wire) == (3, BYTES):  # VersionDef; field 2 is min_consumer
            oldest_reader = read_number(value[begin:end], 2)
    if endianness:
        raise BadData("its values are big-endian.", "Save the checkpoint again on a little-endian machine.")
    if oldest_reader > VERSION:
        raise BadData(f"it needs a reader of version {oldest_reader}; this reader has version {VERSION}.")
    if not 1 <= shards <= 99_999:
        raise BadData(f"it claims {shards:,} data files.")
    return shards


def read_number(message: memoryview, wanted: int) -> int:
    """Return the number in field `wanted` of a protobuf message; 0 if it is missing."""
    value = 0
    for number, wire, begin, end in iterate_fields(message, 0, len(message)):
        if (number, wire) == (wanted, VARINT):
            value = read_varint(message, begin, end)[0]
    return value


def read_entry(value: memoryview) -> Variable:
    """Parse the BundleEntryProto of one variable."""
    numbers = dict.fromkeys((1, 3, 4, 5), 0)  # by field: dtype, shard, offset, size
    shape: tuple[int, ...] = ()
    checksum, sliced = 0, False
    for number, wire, begin, end in iterate_fields(value, 0, len(value)):
        if wire == VARINT and number in numbers:
            numbers[number] = read_varint(value, begin, end)[0]
        elif (number, wire) == (2, BYTES):
            shape = read_shape(value[begin:end])
        elif (number, wire) == (6, FIXED32):
            (checksum,) = struct.unpack_from("<I", value, begin)
        elif number == 7:
            sliced = True
    dtype, shard, offset, size = numbers.values()
    dtype_name = {**DTYPES, **OTHER_DTYPES}.get(dtype, f"type {dtype}")
    return Variable(dtype_name, shape, size, dtype, shard, offset, checksum, sliced)


def read_shape(message: memoryview) -> tuple[int, ...]:
    """Parse a TensorShapeProto."""
    shape = []
    for number, wire, begin, end in iterate_fields(message, 0, len(message)):
        if (number, wire) == (2, BYTES):
            shape.append(read_number(message[begin:end], 1))
    if len(shape) > MAX_AXES or any(extent >> 63 for extent in shape):
        raise BadData(f"a variable has an impossible shape of {len(shape)} axes.")
    return tuple(shape)


# Writing


def write_bundle(path: Path | str, tensors: Mapping[str, Tensor]) -> Path:
    """Write a checkpoint of one shard, record it as the latest in the file `checkpoint`, and return its prefix."""
    prefix = Path(path)
    for name, tensor in tensors.items():
        if get_dtype_name(tensor) not in NUMBERS:
            raise BadValue(f"{name} holds {tensor.dtype} values, which are not written to a TensorFlow checkpoint.")
    order = sorted(tensors, key=lambda name: name.encode())
    with explain_write_errors(prefix, "the checkpoint "):
        with replace_file(locate_shard(prefix, 0, 1)) as file:
            pairs = list(write_values(file, ((name, tensors[name]) for name in order)))
        write_file(prefix.with_name(prefix.name + ".index"), write_table([(b"", encode_header()), *pairs]))
        record_latest(prefix)
    return prefix


def write_values(file: BinaryIO, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[bytes, bytes]]:
    """Write the values; yield each name with its index entry."""
    import torch

    offset = 0
    for name, tensor in tensors:
        content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        file.write(content)
        yield name.encode(), encode_entry(tensor, offset, content)
        offset += len(content)


def encode_header() -> bytes:
    """Return the BundleHeaderProto of a checkpoint with one shard."""
    return encode_number(1, 1) + encode_bytes(3, encode_number(1, VERSION))


def encode_entry(tensor: Tensor, offset: int, content: bytes) -> bytes:
    """Return the BundleEntryProto of one variable."""
    shape = b"".join(encode_bytes(2, encode_number(1, extent)) for extent in tensor.shape)
    message = encode_number(1, NUMBERS[get_dtype_name(tensor)]) + encode_bytes(2, shape)
    if offset:
        message += encode_number(4, offset)
    message += encode_number(5, len(content))
    return message + pack_varint(6 << 3 | FIXED32) + struct.pack("<I", compute_masked_crc32c(content))
