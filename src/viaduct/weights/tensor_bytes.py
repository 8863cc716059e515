"""Helpers for all checkpoint formats: tensors as raw bytes, and errors of writing."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from viaduct.errors import BadData, DiskFull

if TYPE_CHECKING:
    from torch import Tensor


def dtype_of(tensor: Tensor) -> str:
    """Return the name of a tensor's dtype, such as float32."""
    return str(tensor.dtype).removeprefix("torch.")


def count_bytes(dtype: str) -> int:
    """Return the bytes of one value: 4 for float32 or F32, 1 for bool."""
    bits = re.search(r"\d+", dtype)
    return max(1, int(bits[0]) // 8) if bits else 1


def as_tensor(content: bytearray, dtype: str, shape: tuple[int, ...]) -> Tensor:
    """Return little-endian bytes as a tensor; except for bool, it shares their memory."""
    import torch

    torch_dtype = getattr(torch, dtype)
    if not content:
        if math.prod(extent for extent in shape if extent) >= 1 << 62:
            raise BadData(f"a variable has an impossible shape: {shape}.")
        return torch.empty(shape, dtype=torch_dtype)
    if torch_dtype is torch.bool:  # bytes other than 0 and 1 become True; torch would keep them as invalid bools
        return torch.frombuffer(content, dtype=torch.uint8).ne(0).reshape(shape)
    return torch.frombuffer(content, dtype=torch_dtype).reshape(shape)


@contextmanager
def explain_write_errors(path: Path, noun: str = "") -> Iterator[None]:
    """Create the folder of a file; within the block, turn file system errors into `DiskFull`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise DiskFull(f"cannot write {noun}{path}: {error.strerror}.") from None
