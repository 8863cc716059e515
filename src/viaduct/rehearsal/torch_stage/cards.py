"""State of the process's cards: name, number, the current one, and allocated bytes.

A tensor of the stand-in is an ordinary tensor with the CPU's memory and another device. The device is set through
DLPack, PyTorch's interface for memory of other libraries: a capsule holds the address of the bytes and their device,
and the device field is changed between export and import. This takes 1.5 µs a tensor, without a copy and without C++.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from dataclasses import dataclass, field
from typing import Any

import torch

_EXTENSION = 12  # DLPack's kDLExtDev, which PyTorch reads as the out-of-tree device, PrivateUse1
_HOST = 1  # kDLCPU
_DEVICE_FIELD = 8  # of DLTensor, behind the data pointer: two int32, kind and index
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_field = ctypes.c_int64.from_address
_export: Any = torch._C._to_dlpack
_import: Any = torch._C._from_dlpack
# Returns the card that a tensor is on, -1 for the host. Unlike `tensor.device`, original.py does not replace it.
card_of: Any = torch._C.TensorBase.get_device


@dataclass
class Meter:
    """Bytes of one card: allocated now, the peak since the last reset, and the counts of allocations and releases."""

    alive: int = 0
    peak: int = 0
    taken: int = 0
    returned: int = 0
    bytes_taken: int = 0
    bytes_returned: int = 0

    def allocate(self, size: int) -> None:
        """Count an allocation."""
        self.alive += size
        self.peak = max(self.peak, self.alive)
        self.taken += 1
        self.bytes_taken += size

    def give_back(self, size: int) -> None:
        """Count a release."""
        self.alive -= size
        self.returned += 1
        self.bytes_returned += size


@dataclass
class Cards:
    """The cards of this process. `name` is empty until the stage is installed."""

    name: str = ""
    count: int = 0
    meters: list[Meter] = field(default_factory=list)
    local: threading.local = field(default_factory=threading.local)
    names: set[str] = field(default_factory=set)  # its own, and cuda where cuda means it (mapping.py)
    memory: int = 64 << 30  # of each card: a 910B's, an MLU590's is 80

    @property
    def public_name(self) -> str:
        """Return the name by which a script knows the device."""
        return "cuda" if self.name == "gpu" else self.name

    @property
    def current(self) -> int:
        # The current card is a thread's own, as with CUDA; a new thread begins with the first.
        return int(getattr(self.local, "index", 0))

    def select(self, index: int) -> None:
        if not 0 <= index < self.count:
            raise RuntimeError(
                f"Invalid device ID: {index}. The rehearsal has {self.count} {self.public_name} device(s)."
            )
        self.local.index = index


cards = Cards()
_lock = threading.RLock()  # a weak reference's callback may come while this thread holds it
_living: dict[weakref.ref[Any], tuple[int, int]] = {}
# A process that was forked has its parent's tensors, and frees none of them on a card.
os.register_at_fork(after_in_child=_living.clear)


def beneath(tensor: torch.Tensor) -> torch.Tensor:
    """Return a CPU tensor with the same memory."""
    capsule = _export(tensor)
    address = _pointer(capsule, b"dltensor")
    if not _field(address).value and tensor._is_zerotensor():
        return torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu")  # a zero tensor has no memory
    _field(address + _DEVICE_FIELD).value = _HOST
    made: torch.Tensor = _import(capsule)
    # DLPack does not carry the conjugate and negative bits, with which PyTorch marks lazy views.
    if tensor.dtype.is_complex and tensor.is_conj():
        made = made.conj()
    if tensor.is_neg():
        made = torch._neg_view(made)
    return made


def onto(tensor: torch.Tensor, index: int) -> torch.Tensor:
    """Return a tensor of card `index` with the memory of a new CPU tensor, which is counted there until it is freed."""
    capsule = _export(tensor)
    _field(_pointer(capsule, b"dltensor") + _DEVICE_FIELD).value = _EXTENSION | index << 32
    made: torch.Tensor = _import(capsule)
    storage = tensor.untyped_storage()
    size = storage.nbytes()
    if size:
        with _lock:
            cards.meters[index].allocate(size)
            _living[weakref.ref(storage, _forget)] = (index, size)
    return made


def _forget(reference: weakref.ref[Any]) -> None:
    with _lock:
        known = _living.pop(reference, None)
        if known:
            cards.meters[known[0]].give_back(known[1])


def index_of(device: Any) -> int:
    """Return the card that a device names: `npu:1`, or 1; the current one for `npu`, a negative number and None.

    Raise ValueError for another device.
    """
    if device is None:
        return cards.current
    if isinstance(device, int) and not isinstance(device, bool):
        return cards.current if device < 0 else device
    device = torch.device(device) if isinstance(device, str) else device
    if not isinstance(device, torch.device):
        raise ValueError(f"Expected a torch.device, a string or a number, but got: {device!r}")
    if device.type not in cards.names:
        raise ValueError(f"Expected a {cards.public_name} device, but got: {device}")
    return cards.current if device.index is None else int(device.index)
