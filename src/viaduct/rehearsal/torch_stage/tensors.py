"""Wrappers of torch's functions, and of methods of tensors, modules and storages, that a vendor's plug-in replaces."""

from __future__ import annotations

import functools
import re
from typing import Any

import torch

from viaduct.rehearsal.torch_stage.cards import cards, put_on_card
from viaduct.rehearsal.torch_stage.dispatch import replace_function
from viaduct.rehearsal.torch_stage.legacy import DTYPE_OF_PREFIX, TensorType
from viaduct.rehearsal.wrapping import wrap

_TENSOR_TYPE = re.compile(r"torch\.(\w+)\.(\w+)Tensor")  # such as torch.npu.FloatTensor


def install() -> None:
    """Wrap the functions and methods that take a device or a tensor type."""
    torch.Tensor.to = _wrap_device(torch.Tensor.to, takes_number=True)  # type: ignore[method-assign]
    torch.Tensor.new_tensor = _wrap_device(torch.Tensor.new_tensor)  # type: ignore[method-assign]
    sparse = [f"sparse_{layout}_tensor" for layout in ("coo", "compressed", "csr", "csc", "bsr", "bsc")]
    for name in ("tensor", "as_tensor", "asarray", *sparse):
        replace_function(name, _wrap_device)
    torch.nn.Module.to = _wrap_device(torch.nn.Module.to, takes_number=True)  # type: ignore[method-assign]
    wrap(torch.Tensor, "type")(_convert_type)
    wrap(torch, "set_default_tensor_type")(_set_default_tensor_type)
    _wrap_storages()


def _wrap_device(function: Any, takes_number: bool = False) -> Any:
    """Wrap a function so that the device "npu" means the current card.

    If `takes_number` is True, a number is accepted as a device, too: 1 means "npu:1".
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = _resolve_device(kwargs["device"], takes_number)
        elif len(args) > 1 and isinstance(args[1], str | torch.device | int):
            args = (args[0], _resolve_device(args[1], takes_number), *args[2:])
        return function(*args, **kwargs)

    return call


def _resolve_device(device: Any, takes_number: bool = False) -> Any:
    """Return a card's device with its number, and other values unchanged."""
    if isinstance(device, str) and device == cards.device_name:
        return torch.device(device, cards.current_index)
    if isinstance(device, torch.device) and device.type == cards.device_name and device.index is None:
        return torch.device(cards.device_name, cards.current_index)
    if takes_number and isinstance(device, int) and not isinstance(device, bool):
        return torch.device(cards.device_name, device)
    return device


def _find_dtype_of_type(kind: Any) -> torch.dtype | None:
    """Return the dtype of one of the device's tensor types, or of such a type's name; None for other values.

    torch.float32 for `torch.npu.FloatTensor` and "torch.npu.FloatTensor".
    """
    if isinstance(kind, TensorType):
        return kind.dtype
    match = _TENSOR_TYPE.fullmatch(kind) if isinstance(kind, str) else None
    if match is None or match[1] not in (cards.device_name, cards.name_in_script):
        return None
    return DTYPE_OF_PREFIX.get(match[2])


def _convert_type(plain: Any, self: Any, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    """Convert a tensor as Tensor.type does, which also takes the device's tensor types here."""
    card_dtype = _find_dtype_of_type(dtype)
    if card_dtype is not None:
        return self.to(cards.device_name, card_dtype, non_blocking)
    return plain(self, dtype, non_blocking, **kwargs) if dtype is not None else plain(self)


def _set_default_tensor_type(plain: Any, t: Any) -> None:
    """Set the default as torch.set_default_tensor_type does, which also takes the device's tensor types here."""
    dtype = _find_dtype_of_type(t)
    if dtype is None:
        torch.set_default_device(None)
        plain(t)
    else:
        torch.set_default_dtype(dtype)
        torch.set_default_device(cards.device_name)


def _wrap_storages() -> None:
    """Let storages be made on the card and moved to it; refuse to resize a card's storage."""
    base: Any = torch._C.StorageBase
    plain_new, plain_resize = base.__new__, base.resize_

    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        if device is None or torch.device(device).type != cards.device_name:
            return plain_new(cls, *args, **kwargs)
        device = _resolve_device(torch.device(device))
        return put_storage_on_card(plain_new(cls, *args, device="cpu"), device.index)

    def resize(self: Any, size: int) -> Any:
        if self.device.type != cards.device_name:
            return plain_resize(self, size)
        if size != self.nbytes():
            raise NotImplementedError(
                f"A rehearsal does not resize storages on the {cards.name_in_script}, as FullyShardedDataParallel and "
                "fully_shard do: use DistributedDataParallel for the rehearsal."
            )
        return self

    torch.UntypedStorage.__new__ = staticmethod(new)  # type: ignore[method-assign]
    torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign]
    setattr(torch.UntypedStorage, cards.device_name, _storage_to)
    for storage in (torch.UntypedStorage, torch.TypedStorage):
        setattr(storage, f"is_{cards.device_name}", property(lambda self: self.device.type == cards.device_name))
    setattr(torch.TypedStorage, cards.device_name, _typed_storage_to)


def _storage_to(self: Any, device: Any = None, non_blocking: bool = False) -> Any:
    device = torch.device(cards.device_name) if device is None else device
    device = torch.device(cards.device_name, device) if isinstance(device, int) else torch.device(device)
    return self.to(device=_resolve_device(device))


def _typed_storage_to(self: Any, device: Any = None, non_blocking: bool = False) -> Any:
    return self._new_wrapped_storage(_storage_to(self._untyped_storage, device))


def put_storage_on_card(storage: Any, index: int) -> Any:
    """Return a card's storage over the memory of a host's storage."""
    return put_on_card(torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage), index).untyped_storage()
