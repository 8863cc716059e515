"""MindSpore checkpoints (`.ckpt`), read and written without MindSpore.

    with MindsporeFile("resnet50-90_625.ckpt") as stored:
        stored.entries["conv1.weight"].shape, stored.read("conv1.weight")
    write_mindspore("r50.ckpt", {"conv1.weight": tensor})

A file is one protobuf message, without a magic number:

    Checkpoint { 1 (repeated): Value { 1: name, 2: Tensor { 1 (repeated): dims, 2: type, 3: content } | 3: map } }

`content` is raw and little-endian. A parameter above 512 MB is split into consecutive values with the same name and the
full shape. `save_checkpoint(crc_check=True)` appends "crc_num" and ten bytes with the CRC-32 of all bytes before these.
The file is memory-mapped; opening it reads only names, types and shapes.
"""

from __future__ import annotations

import math
import mmap
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from viaduct.atomic_files import replace_file
from viaduct.errors import BadData, BadValue, UnknownName
from viaduct.protobuf_wire import (
    BYTES,
    VARINT,
    encode_bytes,
    encode_number,
    find_content,
    iterate_fields,
    read_tag,
    read_varint,
)
from viaduct.terminal import escape_controls
from viaduct.weights.checkpoint import Entry, FrameworkCheckpoint, count_bytes, explain_write_errors, get_dtype_name

if TYPE_CHECKING:
    from torch import Tensor, nn

    from viaduct.models.links import Link
    from viaduct.weights.recognise import Guess

SLICE_BYTES = 512 << 20  # largest content of one value, as in MindSpore
# Limits above which a file is taken for damaged.
MAX_PARAMETERS = 100_000
MAX_AXES = 254  # as in TensorFlow
MAX_NAME_BYTES = 4096
TRAILER, CRC_LENGTH = b"crc_num", 10
# Encrypted files begin with the number of their cipher.
CIPHERS = {0x7F3A5ED8: "AES-GCM", 0x7F3A5ED9: "AES-CBC", 0x7F3A5EDA: "SM4-CBC"}

# MindSpore's names of the supported types; torch's are the same in lower case. Other types are listed, but not read.
TYPE_NAMES = "Bool Int8 UInt8 Int16 UInt16 Int32 UInt32 Int64 UInt64 Float16 BFloat16 Float32 Float64"
DTYPES = {name: name.lower() for name in TYPE_NAMES.split()}
MAP = "map"  # dtype of a parameter that is a map, not a tensor
# TensorFlow's name of an optimizer's state -> what MindSpore's nn.Momentum and nn.SGD put before a parameter's name.
SLOT_PREFIXES = {"Momentum": ("moments.", "accum.")}

Span = tuple[int, int]  # begin and end of content in the file


@dataclass(frozen=True)
class Parameter(Entry):
    """Type and shape of one parameter, and the position of its content."""

    spans: tuple[Span, ...]  # several if the parameter is split into several values


class MindsporeNames(FrameworkCheckpoint):
    """Base of files with MindSpore's names: its own format, and safetensors (stored.py)."""

    step_names = ("global_step", "step_num")  # written by the optimizer and by ModelCheckpoint

    def list_slot_names(self, slot: str, variable: str) -> list[str]:
        return [prefix + variable for prefix in SLOT_PREFIXES.get(slot, ())]

    def list_layouts(self, model: nn.Module) -> dict[str, list[Link]]:
        from viaduct.weights import mindspore_names

        return mindspore_names.list_wrapped_layouts(model, self.entries)

    def guess_networks(self) -> list[Guess]:
        from viaduct.weights import recognise

        return recognise.recognise_mindspore({name: parameter.shape for name, parameter in self.entries.items()})

    def describe_differences(self, model: nn.Module, layout: str) -> list[str]:
        from viaduct.weights import mindspore_names

        return mindspore_names.describe_differences(model, layout)


class MindsporeFile(MindsporeNames):
    """MindSpore checkpoint opened for reading; the first read of values verifies the file's checksum, if it has one."""

    def __init__(self, path: Path | str) -> None:
        self.prefix = Path(path)
        self.entries: dict[str, Parameter] = {}
        self._is_verified = False  # True once the content was found to match the file's checksum
        try:
            with self.prefix.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # a ValueError: the file is empty
            reason = error.strerror if isinstance(error, OSError) else "it is empty"
            raise BadData(f"{self.prefix} cannot be read: {reason}.") from None
        self._data = memoryview(self._map)
        try:
            self._read_headers()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._data.release()
        self._map.close()

    def read_bytes(self, name: str) -> bytearray:
        if name not in self.entries:
            raise UnknownName(f"parameter in {self.prefix}", name, self.entries)
        parameter = self.entries[name]
        if parameter.dtype not in DTYPES.values():
            raise BadData(
                f"{self.prefix}: {escape_controls(name)} holds {escape_controls(parameter.dtype)} values, "
                "which cannot be read.",
                f"Readable types: {', '.join(DTYPES)}.",
            )
        self._compare_checksum()
        return bytearray().join(self._data[begin:end] for begin, end in parameter.spans)

    # Headers

    def _read_headers(self) -> None:
        """Fill `entries` from the names, types and shapes of all parameters."""
        refuse_encrypted(self.prefix, bytes(self._data[:4]))
        end = self._find_end()
        position, previous = 0, ""
        while position < end:
            name, parameter, position = self._read_value(position, end)
            if name == previous and name in self.entries:
                parameter = self._join(name, self.entries[name], parameter)
            elif name in self.entries:
                raise self._make_damage_error(f"{escape_controls(name)} is there twice")
            elif len(self.entries) == MAX_PARAMETERS:
                raise self._make_damage_error(f"it names more than {MAX_PARAMETERS:,} parameters")
            self.entries[name], previous = parameter, name
        for name, parameter in self.entries.items():
            self.entries[name] = self._check_size(name, parameter)

    def _read_value(self, position: int, end: int) -> tuple[str, Parameter, int]:
        """Return name and `Parameter` of the Value message at a position, and the position of the next one."""
        data, begin = self._data, position
        try:
            number, wire, position = read_tag(data, position, end)
            is_value = (number, wire) == (1, BYTES)
            length, position = read_varint(data, position, end) if is_value else (0, position)
        except BadData:
            raise self._make_cut_short_error(f"the parameter at byte {begin:,} does not end") from None
        if not is_value:
            raise self._make_damage_error(f"there is no parameter at byte {begin:,}")
        stop = position + length
        if stop > end:
            raise self._make_cut_short_error(
                f"the parameter at byte {begin:,} needs {stop - end:,} more bytes than the file has"
            )
        try:
            name, parameter = read_value(data, position, stop)
        except BadData as error:
            raise self._make_damage_error(f"the parameter at byte {begin:,}: {error.message.rstrip('.')}") from None
        return name, parameter, stop

    def _join(self, name: str, first: Parameter, more: Parameter) -> Parameter:
        """Return the parameter with the content of both parts, which are consecutive values of the same name."""
        if (first.dtype, first.shape) != (more.dtype, more.shape):
            raise self._make_damage_error(f"{escape_controls(name)} is there twice, with different shapes or types")
        return replace(first, spans=first.spans + more.spans, size=first.size + more.size)

    def _check_size(self, name: str, parameter: Parameter) -> Parameter:
        """Return the parameter; raise `BadData` if its size does not fit its shape."""
        if parameter.dtype not in DTYPES.values():
            return parameter
        size = count_bytes(parameter.dtype)
        if parameter.shape == (0,) and parameter.size == size:  # a scalar, as old versions of MindSpore write it
            return replace(parameter, shape=())
        expected = parameter.count * size
        if parameter.size != expected:
            description = f"{escape_controls(name)} of shape {parameter.shape} and type {parameter.dtype}"
            raise self._make_damage_error(f"{description} has {parameter.size:,} bytes, expected {expected:,}")
        return parameter

    def _find_end(self) -> int:
        """Return the end of the parameters: the beginning of the checksum, or the end of a file without one."""
        begin = len(self._data) - len(TRAILER) - CRC_LENGTH
        has_checksum = begin > 0 and self._data[begin : begin + len(TRAILER)] == TRAILER
        return begin if has_checksum else len(self._data)

    def _compare_checksum(self) -> None:
        """Raise `BadData` if the file has a checksum that its content does not match; compare only once."""
        end = self._find_end()
        if self._is_verified or end == len(self._data):
            return
        if zlib.crc32(self._data[:end]) != int.from_bytes(self._data[-CRC_LENGTH:], "big"):
            raise self._make_damage_error("its content does not match its checksum")
        self._is_verified = True

    def _make_cut_short_error(self, reason: str) -> BadData:
        return BadData(
            f"{self.prefix} was cut short, or is not a MindSpore checkpoint: {reason}.", "Copy or download it again."
        )

    def _make_damage_error(self, reason: str) -> BadData:
        return BadData(f"{self.prefix} is a damaged MindSpore checkpoint: {reason}.", "Copy or download it again.")


def read_value(data: memoryview, position: int, stop: int) -> tuple[str, Parameter]:
    """Parse a Value message: the name of a parameter, and where its content is."""
    name: str | None = None
    parameter: Parameter | None = None
    for number, wire, begin, end in iterate_fields(data, position, stop):
        if (number, wire) == (1, BYTES):
            if not 0 < end - begin <= MAX_NAME_BYTES:
                raise BadData(f"its name has {end - begin:,} bytes.")
            name = str(data[begin:end], "utf-8", "backslashreplace")
        elif (number, wire) == (2, BYTES):
            parameter = read_tensor(data, begin, end)
        elif (number, wire) == (3, BYTES):
            parameter = Parameter(MAP, (), end - begin, ((begin, end),))
    if name is None or parameter is None:
        raise BadData("it has no name." if name is None else "it has no values.")
    return name, parameter


def read_tensor(data: memoryview, position: int, stop: int) -> Parameter:
    """Parse a Tensor message, without its content."""
    shape: list[int] = []
    kind, content_begin, content_end = "", position, position
    for number, wire, begin, end in iterate_fields(data, position, stop):
        if (number, wire) == (1, VARINT):
            shape.append(read_varint(data, begin, end)[0])
        elif (number, wire) == (1, BYTES):  # packed
            while begin < end:
                extent, begin = read_varint(data, begin, end)
                shape.append(extent)
        elif (number, wire) == (2, BYTES):
            kind = str(data[begin:end], "utf-8", "backslashreplace")
        elif (number, wire) == (3, BYTES):
            content_begin, content_end = begin, end
        if len(shape) > MAX_AXES:
            raise BadData(f"its shape has more than {MAX_AXES} axes.")
    if any(axis >> 62 for axis in shape) or math.prod(axis for axis in shape if axis) >= 1 << 62:
        raise BadData(f"its shape is impossible: {tuple(shape)}.")
    dtype, size = DTYPES.get(kind, kind or "no type"), content_end - content_begin
    return Parameter(dtype, tuple(shape), size, ((content_begin, content_end),))


# Detection of the format


def is_mindspore_file(path: Path) -> bool:
    """Return True if a file begins as a MindSpore checkpoint does, encrypted or not; False if it cannot be read."""
    try:
        with path.open("rb") as file:
            start = memoryview(file.read(MAX_NAME_BYTES + 64))
    except OSError:
        return False
    return find_cipher(bytes(start[:4])) is not None or begins_with_parameter(start)


def begins_with_parameter(start: memoryview) -> bool:
    """Return True if a message begins with a value that has a name and a tensor or a map."""
    stop = len(start)
    try:
        number, wire, position = read_tag(start, 0, stop)
        length, position = read_varint(start, position, stop)
        inner, inner_wire, name_position = read_tag(start, position, stop)
        if (number, wire, inner, inner_wire) != (1, BYTES, 1, BYTES):
            return False
        name_begin, name_end = find_content(start, inner, BYTES, name_position, stop)
        name = str(start[name_begin:name_end], "utf-8")
        next_number, next_wire, _ = read_tag(start, name_end, stop)
    except (BadData, UnicodeDecodeError):
        return False
    is_name = name_end < position + length and bool(name) and name.isprintable()
    return is_name and next_wire == BYTES and next_number in (2, 3)


def find_cipher(start: bytes) -> str | None:
    """Return the cipher of a file by its first four bytes; None if it is not encrypted."""
    return CIPHERS.get(int.from_bytes(start, "little")) if len(start) == 4 else None


def refuse_encrypted(path: Path, start: bytes) -> None:
    """Raise `BadData` if the first bytes of a file are those of an encrypted one."""
    cipher = find_cipher(start)
    if cipher is not None:
        raise BadData(
            f"{path} is an encrypted MindSpore checkpoint ({cipher}); it cannot be read without its key.",
            "Decrypt it with MindSpore and the key: save_checkpoint(load_checkpoint(FILE, dec_key=KEY, "
            f"dec_mode='{cipher}'), 'plain.ckpt')",
        )


# Writing


def write_mindspore(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a checkpoint without checksum for mindspore.load_checkpoint, atomically."""
    for name, tensor in tensors.items():
        if get_dtype_name(tensor) not in DTYPES.values():
            raise BadValue(f"{name} holds {tensor.dtype} values, which are not written to a MindSpore checkpoint.")
    with explain_write_errors(path), replace_file(path) as file:
        for name, tensor in tensors.items():
            file.writelines(encode_parameter(name, tensor))


def encode_parameter(name: str, tensor: Tensor, slice_size: int = SLICE_BYTES) -> Iterator[bytes]:
    """Yield the encoded messages of one parameter, each with at most `slice_size` bytes of its content."""
    import torch

    content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    dims = b"".join(encode_number(1, axis) for axis in tensor.shape)
    type_name = next(name for name, dtype in DTYPES.items() if dtype == get_dtype_name(tensor))
    for begin in range(0, max(len(content), 1), slice_size):
        part = content[begin : begin + slice_size].tobytes()
        message = dims + encode_bytes(2, type_name.encode()) + encode_bytes(3, part)
        yield encode_bytes(1, encode_bytes(1, name.encode()) + encode_bytes(2, message))
