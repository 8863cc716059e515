"""Tensor files for tests, whole and damaged."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from viaduct.comparison.records import StoredTensor

VALUES = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def make_stored(path: Path | None, member: str = "", fault: str = "") -> StoredTensor:
    return StoredTensor("op", "", "output", 0, 0, 0, 0, "float32", (), path, member, fault=fault)


def npy_with(path: Path, header: str, data: bytes = b"") -> Path:
    text = header.encode("latin-1")
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data)
    return path


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return sys.exit, ("unpickled",)


def write_array(path: Path, values: Any = VALUES) -> Path:
    if path.suffix == ".npy":
        np.save(path, values)
    elif path.suffix == ".npz":
        np.savez(path, x=values)
    elif path.suffix == ".pt":
        torch.save(torch.from_numpy(values.copy()), path)
    else:
        from safetensors.numpy import save_file

        save_file({"x": values}, path)
    return path


def member_of(suffix: str) -> str:
    return "x" if suffix in ("npz", "safetensors") else ""
