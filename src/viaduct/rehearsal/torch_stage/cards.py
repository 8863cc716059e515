"""The stand-in cards of this process: their device and count, the current card, and allocated bytes.

A tensor of the stand-in is an ordinary tensor with the CPU's memory and another device. The device is set through
DLPack, PyTorch's interface for memory of other libraries: a capsule holds the address of the bytes and their device,
and the device is changed between export and import. This takes 1.5 µs a tensor, without a copy and without C++.
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
_DEVICE_FIELD = 8  # offset of the device in DLTensor, after the data pointer: two int32, kind and index
_address_of = ctypes.pythonapi.PyCapsule_GetPointer
_address_of.restype = ctypes.c_void_p
_address_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
_int64_at = ctypes.c_int64.from_address  # the number at an address, which can be assigned to
_export: Any = torch._C._to_dlpack
_import: Any = torch._C._from_dlpack
# Returns a tensor's card, -1 for the host. `tensor.device` may not be used, since original.py replaces it.
get_card_index: Any = torch._C.TensorBase.get_device


@dataclass
class MemoryMeter:
    """Memory of one card: what is allocated now, its peak, and totals; scripts can reset the peak and the totals."""

    current_tensors: int = 0  # tensors with memory of their own
    current_bytes: int = 0
    peak_bytes: int = 0
    allocations: int = 0
    releases: int = 0
    bytes_allocated: int = 0
    bytes_released: int = 0

    def allocate(self, size: int) -> None:
        self.current_tensors += 1
        self.current_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.current_bytes)
        self.allocations += 1
        self.bytes_allocated += size

    def release(self, size: int) -> None:
        self.current_tensors -= 1
        self.current_bytes -= size
        self.releases += 1
        self.bytes_released += size


@dataclass
class Cards:
    """The stand-in cards of this process: devices of one type, npu:0, npu:1 and so on."""

    device_name: str = ""  # their type: npu, mlu, or gpu in place of cuda (original.py); "" until installed
    count: int = 0
    memory_meters: list[MemoryMeter] = field(default_factory=list)  # by card
    thread_state: threading.local = field(default_factory=threading.local)  # each thread's current card and streams
    # Types of devices that mean a card: `device_name`, and cuda where `mapping.py` maps it to the card.
    accepted_types: set[str] = field(default_factory=set)
    memory_bytes: int = 0  # of each card, as the real card has them; 0 until installed

    @property
    def name_in_script(self) -> str:
        """Return the device type that the script uses: npu, mlu or cuda."""
        return "cuda" if self.device_name == "gpu" else self.device_name

    @property
    def current_index(self) -> int:
        """Return the current card of this thread; as with CUDA, a new thread begins with the first."""
        return int(getattr(self.thread_state, "index", 0))

    def select(self, index: int) -> None:
        """Make a card the current one of this thread; raise RuntimeError if it does not exist."""
        self.check(index)
        self.thread_state.index = index

    def check(self, index: int) -> None:
        """Raise RuntimeError if card `index` does not exist."""
        if not 0 <= index < self.count:
            raise RuntimeError(
                f"Invalid device ID: {index}. The rehearsal has {self.count} {self.name_in_script} device(s)."
            )


cards = Cards()
_lock = threading.RLock()  # reentrant: garbage collection may call `_release` while this thread holds it
_living: dict[weakref.ref[Any], tuple[int, int]] = {}  # by storage: its card and its bytes
# A forked process has copies of its parent's tensors. Freeing one does not lower the meters: the parent still holds the
# card's memory.
os.register_at_fork(after_in_child=_living.clear)


def view_on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """Return a CPU tensor over the memory of a card's tensor."""
    capsule = _export(tensor)
    address = _address_of(capsule, b"dltensor")
    if not _int64_at(address).value and tensor._is_zerotensor():
        return torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu")  # a zero tensor has no memory
    _int64_at(address + _DEVICE_FIELD).value = _HOST
    cpu_tensor: torch.Tensor = _import(capsule)
    # DLPack does not carry the conjugate and negative bits, with which PyTorch marks lazy views.
    if tensor.dtype.is_complex and tensor.is_conj():
        cpu_tensor = cpu_tensor.conj()
    if tensor.is_neg():
        cpu_tensor = torch._neg_view(cpu_tensor)
    return cpu_tensor


def to_cpu(value: Any) -> Any:
    """Return a CPU tensor over the memory of a card's tensor, and other values unchanged."""
    return view_on_cpu(value) if isinstance(value, torch.Tensor) and get_card_index(value) >= 0 else value


def put_on_card(tensor: torch.Tensor, index: int) -> torch.Tensor:
    """Return a tensor of card `index` over the memory of a new CPU tensor, counted as allocated until it is freed."""
    capsule = _export(tensor)
    _int64_at(_address_of(capsule, b"dltensor") + _DEVICE_FIELD).value = _EXTENSION | index << 32
    on_card: torch.Tensor = _import(capsule)
    storage = tensor.untyped_storage()
    size = storage.nbytes()
    if size:
        with _lock:
            cards.memory_meters[index].allocate(size)
            # PyTorch keeps a storage's Python object, and so this reference, until `on_card` frees the memory.
            _living[weakref.ref(storage, _release)] = (index, size)
    return on_card


def _release(reference: weakref.ref[Any]) -> None:
    with _lock:
        if (entry := _living.pop(reference, None)) is not None:
            index, size = entry
            cards.memory_meters[index].release(size)


def resolve_card_index(device: Any) -> int:
    """Return a card's index: 1 for `npu:1` or 1; the current card's for `npu`, a negative number or None.

    Raise ValueError for other kinds of devices.
    """
    if device is None:
        return cards.current_index
    if isinstance(device, int) and not isinstance(device, bool):
        return cards.current_index if device < 0 else device
    device = torch.device(device) if isinstance(device, str) else device
    if not isinstance(device, torch.device):
        raise ValueError(f"Expected a torch.device, a string or a number, but got: {device!r}")
    if device.type not in cards.accepted_types:
        raise ValueError(f"Expected a {cards.name_in_script} device, but got: {device}")
    return cards.current_index if device.index is None else int(device.index)
