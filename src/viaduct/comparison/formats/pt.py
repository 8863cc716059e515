"""One tensor as torch.save writes it, which is how msprobe stores them.

The file is a zip archive: a pickle that says shape, strides and type, and the bytes, uncompressed. The pickle is read
with a reader that knows six names and refuses every other, so nothing is ever executed, and importing torch (a second
and more, in every worker) is not needed. What torch wrote before 2020, and anything else unusual, goes to
torch.load(weights_only=True).
"""

from __future__ import annotations

import io
import math
import pickle
import warnings
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from viaduct.comparison.formats import Array, Header, Members, dtype_name, mapped, stamp, unreadable
from viaduct.comparison.formats.npz import archive, data_offset, unpacked
from viaduct.errors import BadData, ViaductError

LONGEST = 1 << 20  # bytes of pickle; one tensor takes 150
MOST_REPEATED = 1 << 28  # values of a tensor that repeats its storage by strides of zero
STORAGES = {
    "DoubleStorage": "<f8", "FloatStorage": "<f4", "HalfStorage": "<f2", "BFloat16Storage": "<V2",
    "LongStorage": "<i8", "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "|i1", "ByteStorage": "|u1",
    "BoolStorage": "|b1", "ComplexFloatStorage": "<c8", "ComplexDoubleStorage": "<c16",
}  # fmt: skip


class Storage(NamedTuple):
    descr: str
    key: str
    values: int


class Tensor(NamedTuple):
    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Unusual(Exception):
    """Not what this reader knows; torch may still know it."""


def members(path: Path) -> Members:
    try:
        tensor = _described(path)
    except Unusual:
        array, dtype = _through_torch(path)
        return {"": Header(dtype, array.shape, array.dtype.str, 0)}
    return {"": Header(dtype_name(tensor.storage.descr) or "", tensor.shape, tensor.storage.descr, 0)}


def opened(path: Path, member: str = "") -> Array:
    try:
        tensor = _described(path)
        return _strided(_flat(path, tensor.storage), tensor, path)
    except Unusual:
        return _through_torch(path)[0]


def _described(path: Path) -> Tensor:
    stamp(path)
    try:
        with open(path, "rb") as file:
            if file.read(4) != b"PK\x03\x04":
                raise Unusual("not a zip archive")
    except OSError as error:
        raise unreadable(path, error) from None
    infos = archive(path)
    pickled = next((info for name, info in infos.items() if name.endswith("/data.pkl")), None)
    order = next((info for name, info in infos.items() if name.endswith("/byteorder")), None)
    if pickled is None or pickled.file_size > LONGEST or (order and unpacked(path, order, 16) != b"little"):
        raise Unusual("another layout")
    try:
        tensor = _Reader(io.BytesIO(unpacked(path, pickled))).load()
    except Unusual:
        raise
    except Exception as error:  # a damaged pickle may raise anything
        raise Unusual(str(error)) from None
    if not isinstance(tensor, Tensor):
        raise Unusual("not one tensor")
    return tensor


def _flat(path: Path, storage: Storage) -> Array:
    infos = archive(path)
    info = next((info for name, info in infos.items() if name.endswith(f"/data/{storage.key}")), None)
    header = Header("", (storage.values,), storage.descr, 0)
    if info is None or info.compress_type != zipfile.ZIP_STORED:
        raise Unusual("packed otherwise")
    if info.file_size < header.size:
        raise BadData(f"{path.name} is cut short: {header.size:,} bytes wanted, {info.file_size:,} found.")
    return mapped(path, header, data_offset(path, info))


def _strided(flat: Array, tensor: Tensor, path: Path) -> Array:
    if not math.prod(tensor.shape):
        return np.frombuffer(b"", flat.dtype).reshape(tensor.shape)
    last = tensor.offset + sum((dim - 1) * stride for dim, stride in zip(tensor.shape, tensor.strides, strict=True))
    if last >= flat.size or math.prod(tensor.shape) > max(flat.size, MOST_REPEATED):
        raise BadData(f"{path.name}: its tensor reaches to value {last:,} of {flat.size:,}.")
    strides = [stride * flat.itemsize for stride in tensor.strides]
    return np.ndarray(tensor.shape, flat.dtype, flat, tensor.offset * flat.itemsize, strides)


def _rebuilt(storage: object, offset: object, shape: object, strides: object, *_: object) -> Tensor:
    """Stands where torch._utils._rebuild_tensor_v2 stood; checks what the pickle hands over."""
    numbers = (offset, *shape, *strides) if isinstance(shape, tuple) and isinstance(strides, tuple) else (None,)
    if not isinstance(storage, Storage) or not all(type(number) is int and 0 <= number < 1 << 62 for number in numbers):
        raise Unusual("not a tensor")
    return Tensor(storage, numbers[0], shape, strides)  # type: ignore[arg-type]


def _same(tensor: object, *_: object) -> object:
    return tensor


class _Reader(pickle.Unpickler):
    """Knows the names that a saved tensor or parameter speaks of. No other is ever imported or called."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _rebuilt
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return _same
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch" and name in STORAGES:
            return STORAGES[name]
        raise Unusual(f"{module}.{name}")

    def persistent_load(self, saved: Any) -> Storage:
        kind, descr, key, _, values = saved
        if kind != "storage" or descr not in STORAGES.values() or not str(key).isdigit() or type(values) is not int:
            raise Unusual("another storage")
        return Storage(descr, str(key), values)


def _through_torch(path: Path) -> tuple[Array, str]:
    import torch

    try:
        loaded = _loaded(path)
        if not isinstance(loaded, torch.Tensor):
            raise BadData(f"{path.name} holds {type(loaded).__name__}, not one tensor.")
        tensor = loaded.detach().resolve_conj().resolve_neg()
        array = (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    except ViaductError:
        raise
    except Exception as error:  # torch's reader, too, raises whatever it stumbles over
        raise BadData(f"{path.name} cannot be read as a tensor: {_in_plain_words(error)}") from None
    array.flags.writeable = False
    return array, str(tensor.dtype).removeprefix("torch.")


def _loaded(path: Path) -> Any:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch has to say about a file that somebody else made
        try:
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except RuntimeError:  # files of the old kind cannot be mapped
            return torch.load(path, map_location="cpu", weights_only=True)


def _in_plain_words(error: Exception) -> str:
    """Not in torch's own: it advises to switch off what keeps a file from running code."""
    again = "Save the tensor alone, with torch.save(tensor.detach().cpu(), FILE)."
    if isinstance(error, pickle.UnpicklingError) and "unsupported" in str(error).lower():
        damaged = "it is damaged, or " if "operand" in str(error) else "it "
        return f"{damaged}holds Python objects, which are not opened, since that could run code. {again}"
    if isinstance(error, TypeError):
        return f"it is sparse, or of a type that NumPy does not have. {again}"
    return f"it is damaged, or no file of torch.save. Copy it again. {again}"
