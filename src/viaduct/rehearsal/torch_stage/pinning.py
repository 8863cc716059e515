"""Pinned memory: an ordinary copy whose `is_pinned` is True."""

from __future__ import annotations

import functools
import warnings
import weakref
from typing import Any

import torch
from torch.utils._device import _device_constructors

from viaduct.rehearsal.torch_stage.cards import get_card_index
from viaduct.rehearsal.torch_stage.dispatch import make_library, replace_function

# Functions of torch and methods of tensors that take pin_memory.
FACTORIES = (
    "empty", "zeros", "ones", "full", "rand", "randn", "randint", "randperm", "arange", "linspace", "eye", "tensor",
    "empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "empty_strided",
)  # fmt: skip
METHODS = ("new_empty", "new_zeros", "new_ones", "new_full", "new_tensor")
_pinned: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()  # pinned storages by address


def _pin(self: torch.Tensor, device: Any = None) -> torch.Tensor:
    """Return a copy that is pinned while its memory is alive."""
    if get_card_index(self) >= 0:
        raise RuntimeError(f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")
    copy = torch.empty_like(self, device="cpu").copy_(self)
    _mark_pinned(copy)
    return copy


def _mark_pinned(tensor: torch.Tensor) -> None:
    storage = tensor.untyped_storage()
    _pinned[storage.data_ptr()] = storage


def _is_pinned(self: torch.Tensor, device: Any = None) -> bool:
    return get_card_index(self) < 0 and self.numel() > 0 and self.untyped_storage().data_ptr() in _pinned


def _wrap_factory(function: Any) -> Any:
    """Wrap a factory so that it makes an ordinary tensor and pins it; PyTorch would call a plug-in's C++ allocator."""

    @functools.wraps(function)
    def create(*args: Any, **kwargs: Any) -> Any:
        if not kwargs.get("pin_memory"):
            return function(*args, **kwargs)
        tensor = function(*args, **{**kwargs, "pin_memory": False})
        return tensor.pin_memory() if tensor.numel() else tensor

    return create


def install() -> None:
    """Let factories take pin_memory=True."""
    _device_constructors()  # caches PyTorch's set of factories before they are wrapped here and in tensors.py
    for name in FACTORIES:
        replace_function(name, _wrap_factory)
    for name in METHODS:
        setattr(torch.Tensor, name, _wrap_factory(getattr(torch.Tensor, name)))


@functools.cache
def replace_empty_strided() -> None:
    """Let PyTorch's C++ code make pinned CPU tensors by empty_strided; it would call a plug-in's C++ allocator.

    DistributedDataParallel does so when it looks for unused parameters. Other scripts keep the faster kernel in C++.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns that the CPU's kernel is replaced
        make_library("aten").impl("empty_strided", _empty_strided, "CPU", allow_override=True)


def _empty_strided(
    size: Any, stride: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> torch.Tensor:
    aten = torch.ops.aten
    length = 0 if 0 in size else 1 + sum((side - 1) * step for side, step in zip(size, stride, strict=True))
    memory = aten.empty.memory_format([length], dtype=dtype, device=torch.device("cpu"))
    if pin_memory:
        _mark_pinned(memory)
    return aten.as_strided.default(memory, list(size), list(stride))  # type: ignore[no-any-return]


def register() -> None:
    """Register the kernels of pin_memory and is_pinned."""
    aten = make_library("aten")
    for key in ("CPU", "PrivateUse1"):
        aten.impl("_pin_memory", _pin, key)
        aten.impl("is_pinned", _is_pinned, key)
