""".pt files with one tensor, as torch.save writes it and msprobe stores its tensors.

The file is a zip archive: a pickle with shape, strides and type, and the uncompressed bytes. The pickle is read by an
unpickler that knows a few names and refuses all others. So nothing is executed, and torch need not be imported, which
takes a second. Files that torch wrote before 2020, and other unusual ones, are read by torch.load(weights_only=True).

An untrusted file must not take more memory than it has bytes. So a pickle must be short, its opcodes are checked before
they are executed (one opcode can ask for a memo of 2^32 entries), and no member of the archive may be compressed.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import warnings
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from viaduct.comparison.formats import Header, Members, make_unreadable_error, map_array, parse_dtype, read_file_stamp
from viaduct.comparison.formats.npz import locate_member, read_archive, unpack_member
from viaduct.comparison.records import Array
from viaduct.errors import BadData, ViaductError

MAX_PICKLE_BYTES = 1 << 16  # one tensor takes 150
MAX_TORCH_PICKLE_BYTES = 1 << 18  # if torch reads it: a subclass of Tensor may have attributes
LEGACY = 0x1950A86A20F9469CFC6C  # magic number, pickled, of files that torch.save wrote before 2020
LEGACY_PICKLES = 5  # LEGACY, the protocol, facts of the system, the object, the keys of its storages
# Opcodes of torch.save for a tensor; none of them can repeat, multiply or nest the content.
OPCODES = frozenset({
    "PROTO", "GLOBAL", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "MARK", "BINUNICODE", "BININT", "BININT1",
    "BININT2", "LONG1", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "NEWTRUE", "NEWFALSE", "NONE",
    "EMPTY_DICT", "BINPERSID", "REDUCE", "STOP",
})  # fmt: skip
MAX_REPEATED = 1 << 28  # elements of a tensor that repeats its storage by strides of zero
HINT = "Save the tensor alone, with torch.save(tensor.detach().cpu(), FILE)."
STORAGES = {
    "DoubleStorage": "<f8", "FloatStorage": "<f4", "HalfStorage": "<f2", "BFloat16Storage": "<V2",
    "LongStorage": "<i8", "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "|i1", "ByteStorage": "|u1",
    "BoolStorage": "|b1", "ComplexFloatStorage": "<c8", "ComplexDoubleStorage": "<c16",
}  # fmt: skip


class Storage(NamedTuple):
    descr: str  # NumPy's name of the dtype, such as <f4
    key: str  # name of its member in the archive, below data/
    element_count: int


class Tensor(NamedTuple):
    """A tensor as its pickle describes it; offset and strides count elements."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Unusual(Exception):
    """A file that this module cannot read, but perhaps torch.load."""


def read_headers(path: Path) -> Members:
    try:
        tensor = _describe_tensor(path)
    except Unusual:
        array, dtype = _load_through_torch(path)
        return {"": Header(dtype, array.shape, array.dtype.str, 0)}
    return {"": Header(parse_dtype(tensor.storage.descr) or "", tensor.shape, tensor.storage.descr, 0)}


def open_array(path: Path, member: str = "") -> Array:
    """Map the file's tensor, or load it through torch if the file is unusual."""
    try:
        tensor = _describe_tensor(path)
        return _apply_strides(_map_storage(path, tensor.storage), tensor, path)
    except Unusual:
        return _load_through_torch(path)[0]


def _describe_tensor(path: Path) -> Tensor:
    """Return the tensor that a file's pickle describes; raise Unusual if it does not describe one tensor."""
    read_file_stamp(path)  # raises BadData for a pipe or a device, on which open() would wait
    try:
        with open(path, "rb") as file:
            if file.read(4) != b"PK\x03\x04":
                raise Unusual("not a zip archive")
    except OSError as error:
        raise make_unreadable_error(path, error) from None
    infos = read_archive(path)
    pickled = next((info for name, info in infos.items() if name.endswith("/data.pkl")), None)
    order = next((info for name, info in infos.items() if name.endswith("/byteorder")), None)
    if (
        pickled is None
        or pickled.file_size > MAX_PICKLE_BYTES
        or (order and unpack_member(path, order, 16) != b"little")
    ):
        raise Unusual("other members than torch.save writes for one tensor")
    try:
        content = unpack_member(path, pickled)
        _check_opcodes(content)
        tensor = _Reader(io.BytesIO(content)).load()
    except Unusual:
        raise
    except Exception as error:  # a damaged pickle may raise anything
        raise Unusual(str(error)) from None
    if not isinstance(tensor, Tensor):
        raise Unusual("not one tensor")
    return tensor


def _check_opcodes(content: bytes) -> None:
    """Raise Unusual for a pickle that does more than describe a tensor, or has a memo larger than itself."""
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name not in OPCODES:
            raise Unusual(opcode.name)
        if opcode.name == "LONG_BINPUT" and (not isinstance(argument, int) or argument > len(content)):
            raise Unusual("a memo that is larger than the pickle")


def _map_storage(path: Path, storage: Storage) -> Array:
    infos = read_archive(path)
    info = next((info for name, info in infos.items() if name.endswith(f"/data/{storage.key}")), None)
    header = Header("", (storage.element_count,), storage.descr, 0)
    if info is None or info.compress_type != zipfile.ZIP_STORED:
        raise Unusual("missing or compressed")
    if info.file_size < header.byte_count:
        raise BadData(f"{path.name} is cut short: it has {info.file_size:,} of {header.byte_count:,} bytes.")
    return map_array(path, header, locate_member(path, info))


def _apply_strides(flat: Array, tensor: Tensor, path: Path) -> Array:
    if not math.prod(tensor.shape):
        return np.frombuffer(b"", flat.dtype).reshape(tensor.shape)
    last = tensor.offset + sum((dim - 1) * stride for dim, stride in zip(tensor.shape, tensor.strides, strict=True))
    if last >= flat.size or math.prod(tensor.shape) > max(flat.size, MAX_REPEATED):
        raise BadData(f"{path.name}: its tensor reaches to element {last:,} of {flat.size:,}.")
    strides = [stride * flat.itemsize for stride in tensor.strides]
    return np.ndarray(tensor.shape, flat.dtype, flat, tensor.offset * flat.itemsize, strides)


def _rebuild_tensor(storage: object, offset: object, shape: object, strides: object, *_: object) -> Tensor:
    """Replace torch._utils._rebuild_tensor_v2; raise Unusual for arguments that do not describe a tensor."""
    numbers = (offset, *shape, *strides) if isinstance(shape, tuple) and isinstance(strides, tuple) else (None,)
    if not isinstance(storage, Storage) or not all(type(number) is int and 0 <= number < 1 << 62 for number in numbers):
        raise Unusual("not a tensor")
    return Tensor(storage, numbers[0], shape, strides)  # type: ignore[arg-type]


class _Reader(pickle.Unpickler):
    """Unpickler for the names in a saved tensor or parameter; no other name is imported or called."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _rebuild_tensor
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return lambda tensor, *_: tensor
        if (module, name) == ("collections", "OrderedDict"):
            return lambda: None  # the hooks of a saved tensor, which are always empty
        if module == "torch" and name in STORAGES:
            return STORAGES[name]
        raise Unusual(f"{module}.{name}")

    def persistent_load(self, saved: Any) -> Storage:
        kind, descr, key, _, values = saved
        if kind != "storage" or descr not in STORAGES.values() or not str(key).isdigit() or type(values) is not int:
            raise Unusual("another storage")
        return Storage(descr, str(key), values)


def _load_through_torch(path: Path) -> tuple[Array, str]:
    import torch

    _check_for_torch(path)
    try:
        loaded = _load_with_torch(path)
        if not isinstance(loaded, torch.Tensor):
            raise BadData(f"{path.name} holds {type(loaded).__name__}, not one tensor.")
        tensor = loaded.detach().resolve_conj().resolve_neg()
        if tensor.layout == torch.strided and tensor.numel() > max(tensor.untyped_storage().nbytes(), MAX_REPEATED):
            raise BadData(f"{path.name}: its tensor has {tensor.numel():,} values, far more than the file holds.")
        array = (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    except ViaductError:
        raise
    except Exception as error:  # on a damaged file torch may raise anything
        raise BadData(f"{path.name} cannot be read as a tensor: {_explain_error(error)}") from None
    array.flags.writeable = False
    return array, str(tensor.dtype).removeprefix("torch.")


def _check_for_torch(path: Path) -> None:
    """Raise BadData if torch would take more memory than the file has bytes, since it trusts the sizes in the file."""
    with open(path, "rb") as file:
        if (start := file.read(4)) == b"PK\x03\x04":
            _check_archive(path)
        else:
            _check_legacy(path, start + file.read(LEGACY_PICKLES * MAX_TORCH_PICKLE_BYTES))


def _check_archive(path: Path) -> None:
    for name, info in read_archive(path).items():
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise BadData(f"{path.name}[{name}] is compressed, which torch.save never does.", HINT)
        if name.endswith("/data.pkl") and info.file_size > MAX_TORCH_PICKLE_BYTES:
            raise BadData(f"{path.name} describes far more than one tensor: {info.file_size:,} bytes of pickle.", HINT)


def _check_legacy(path: Path, start: bytes) -> None:
    """Raise BadData for a file of the old format with long pickles before its storages."""
    content = io.BytesIO(start)
    try:
        if LEGACY not in [argument for _, argument, _ in pickletools.genops(content.read(64))]:
            raise ValueError("another beginning")
        content.seek(0)
        for _ in range(LEGACY_PICKLES):
            begin = content.tell()
            for _ in pickletools.genops(content):
                if content.tell() - begin > MAX_TORCH_PICKLE_BYTES:
                    raise BadData(f"{path.name} describes far more than one tensor.", HINT)
    except ValueError:
        raise BadData(f"{path.name} cannot be read as a tensor: {_explain_error(RuntimeError())}") from None


def _load_with_torch(path: Path) -> Any:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's warnings about the file's format do not help the user
        # Only archives can be mapped.
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))


def _explain_error(error: Exception) -> str:
    """Explain why torch did not load a file. Its own message advises weights_only=False, which may run code."""
    if isinstance(error, pickle.UnpicklingError) and "unsupported" in str(error).lower():
        damaged = "it is damaged, or " if "operand" in str(error) else "it "
        return f"{damaged}holds Python objects, which are not opened: they could run code. {HINT}"
    if isinstance(error, TypeError):
        return f"it is sparse, or of a type that NumPy does not have. {HINT}"
    return f"it is damaged, or not a file of torch.save. Copy it again. {HINT}"
