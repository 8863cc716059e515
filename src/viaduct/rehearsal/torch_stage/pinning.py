"""Pinned memory: a copy of its own that says it is pinned, as the DataLoader and scripts that ask expect it."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from viaduct.rehearsal.torch_stage.cards import card_of
from viaduct.rehearsal.torch_stage.dispatch import library

_pinned: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()  # by address


def _pin(self: torch.Tensor, device: Any = None) -> torch.Tensor:
    if card_of(self) >= 0:
        raise RuntimeError(f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")
    copy = torch.empty_like(self, device="cpu").copy_(self)
    storage = copy.untyped_storage()
    _pinned[storage.data_ptr()] = storage
    return copy


def _is_pinned(self: torch.Tensor, device: Any = None) -> bool:
    return card_of(self) < 0 and self.numel() > 0 and self.untyped_storage().data_ptr() in _pinned


def register() -> None:
    aten = library("aten")
    for key in ("CPU", "PrivateUse1"):
        aten.impl("_pin_memory", _pin, key)
        aten.impl("is_pinned", _is_pinned, key)
