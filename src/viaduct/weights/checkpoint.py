"""Interface of checkpoints of TensorFlow (bundle.py) and MindSpore (mindspore.py), and tensors made of raw bytes.

A link (models/links.py) names a parameter or buffer of a network, and the variables of a checkpoint that hold its
values. A layout is a naming scheme: a list of links. A network may have several layouts.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

from viaduct.errors import BadData, DiskFull

if TYPE_CHECKING:
    from torch import Tensor, nn

    from viaduct.models.links import Link
    from viaduct.weights.recognise import Guess


@dataclass(frozen=True)
class Entry:
    """Type, shape and size of a tensor, without its values."""

    dtype: str  # torch's name, such as float32; that of the file's format if torch has no such type
    shape: tuple[int, ...]
    size: int  # bytes

    @property
    def count(self) -> int:
        """Number of values."""
        return math.prod(self.shape)


AnyCheckpoint = TypeVar("AnyCheckpoint", bound="FrameworkCheckpoint")


class FrameworkCheckpoint(ABC):
    """Weights under the names of TensorFlow or MindSpore, opened for reading."""

    step_names: ClassVar[tuple[str, ...]] = ("global_step",)  # variables that may hold the training step

    prefix: Path  # of TensorFlow's files; in other formats the file
    entries: Mapping[str, Entry]

    def close(self) -> None:  # noqa: B027  # not abstract: weights from a safetensors file have nothing to close
        """Close the files."""

    def __enter__(self: AnyCheckpoint) -> AnyCheckpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def read(self, name: str) -> Tensor:
        """Read the values of a variable; a wrong checksum raises `BadData`."""
        content = self.read_bytes(name)
        return make_tensor(content, self.entries[name].dtype, self.entries[name].shape)

    @abstractmethod
    def read_bytes(self, name: str) -> bytearray:
        """Read the bytes of a variable, without importing torch; a wrong checksum raises `BadData`."""

    def read_integer(self, name: str) -> int | None:
        """Return the value of an integer variable with one value, such as global_step; None if `name` is none such."""
        entry = self.entries.get(name)
        if entry is None or entry.count != 1 or entry.dtype not in ("int32", "int64"):
            return None
        return int.from_bytes(self.read_bytes(name), "little", signed=True)

    @property
    def step(self) -> int | None:
        """Training step at which the checkpoint was saved, the largest if it has several; None if it has none."""
        return max((step for name in self.step_names if (step := self.read_integer(name)) is not None), default=None)

    @abstractmethod
    def list_slot_names(self, slot: str, variable: str) -> list[str]:
        """Return the names under which an optimizer may have stored its state `slot` for a variable."""

    @abstractmethod
    def list_layouts(self, model: nn.Module) -> dict[str, list[Link]]:
        """Return the links of each layout that a checkpoint of this network may have."""

    @abstractmethod
    def guess_networks(self) -> list[Guess]:
        """Return the networks that the names and shapes fit best."""

    def describe_differences(self, model: nn.Module, layout: str) -> list[str]:
        """Return notes on what the network computes differently from the layout's reference; [] if nothing is known."""
        return []


def get_dtype_name(tensor: Tensor) -> str:
    """Return the name of a tensor's dtype, such as float32."""
    return str(tensor.dtype).removeprefix("torch.")


def count_bytes(dtype: str) -> int:
    """Return the bytes of one value: 4 for float32 or F32, 1 for bool."""
    bits = re.search(r"\d+", dtype)
    return max(1, int(bits[0]) // 8) if bits else 1


def make_tensor(content: bytearray, dtype: str, shape: tuple[int, ...]) -> Tensor:
    """Return little-endian bytes as a tensor, which shares their memory (except for bool)."""
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
    """Create the folder of `path`; turn any error of the file system within the `with` block into `DiskFull`.

    `noun`, such as "the checkpoint ", stands before the path in the message.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise DiskFull(f"cannot write {noun}{path}: {error.strerror}.") from None
