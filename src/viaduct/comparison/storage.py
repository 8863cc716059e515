"""Tensors in files of any format: their headers, and read-only arrays, memory-mapped if the file allows it.

read_dtype_and_shape(path, member)   -> ("float32", (64, 3, 7, 7))
open_tensor(tensor)                  -> the array, with the dtype of the file; bfloat16 as its bits in uint16
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from viaduct.comparison.formats import Header, Members, npy, npz, pt, safetensors
from viaduct.comparison.records import Array, StoredTensor
from viaduct.errors import BadData

FORMATS = {".npy": npy, ".npz": npz, ".safetensors": safetensors, ".pt": pt}
SUFFIXES = tuple(FORMATS)


def open_tensor(tensor: StoredTensor) -> Array:
    """Open a tensor read-only, memory-mapped if the file allows it; raise BadData if it cannot be opened."""
    if tensor.fault or tensor.path is None:
        raise BadData(tensor.fault or f"{tensor.tensor_index} was not stored; the dump has its statistics only.")
    array: Array = find_format(tensor.path).open_array(tensor.path, tensor.member)
    return array


def read_dtype_and_shape(path: Path, member: str = "") -> tuple[str, tuple[int, ...]]:
    """Return dtype and shape from the header alone; raise BadData if it cannot be read."""
    header: Header | str | None
    if path.suffix == ".npy":  # one tensor, whatever the member
        header = npy.read_header(path)
    elif (header := read_headers(path).get(member)) is None:
        raise BadData(f"{path.name} has no tensor {member!r}.")
    if isinstance(header, str):  # why the tensor cannot be read
        raise BadData(header)
    return header.dtype, header.shape


def read_headers(path: Path) -> Members:
    """Return each tensor's header, or why it cannot be read. The key is "" in a .npy or .pt file."""
    headers: Members = find_format(path).read_headers(path)
    return headers


def find_format(path: Path) -> ModuleType:
    """Return the module that reads files with this suffix; raise BadData for an unknown one."""
    if path.suffix not in FORMATS:
        raise BadData(f"{path.name}: the suffix is not known.", f"Known suffixes: {', '.join(SUFFIXES)}.")
    return FORMATS[path.suffix]
