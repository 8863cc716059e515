"""torch.save and torch.load: storages of a card are written as such, and come back to it."""

from __future__ import annotations

from typing import Any

import torch

from viaduct.rehearsal.torch_stage import control
from viaduct.rehearsal.torch_stage.cards import cards
from viaduct.rehearsal.torch_stage.tensors import storage_on

_BEFORE_ALL = 5  # PyTorch's own begin at 10


def install(written: str = "") -> None:
    """`written` is the name that locations carry in a file, where it is not the device's."""
    device_name = written or cards.name
    torch.serialization.register_package(
        _BEFORE_ALL, lambda obj: _tag(obj, device_name), lambda obj, at: _restore_storage(obj, at, device_name)
    )


def _tag(storage: Any, prefix: str) -> str | None:
    device = storage.device
    return f"{prefix}:{device.index}" if device.type in (cards.name, prefix) else None


def _restore_storage(storage: Any, location: str, device_name: str) -> Any:
    name, _, number = location.partition(":")
    if name != device_name:
        return None
    index = int(number) if number else cards.current
    count = control.device_count()
    if index >= count:
        raise RuntimeError(
            f"Attempting to deserialize object on {device_name.upper()} device {index} but "
            f"torch.{device_name}.device_count() is {count}. Please use torch.load with map_location "
            "to map your storages to an existing device."
        )
    return storage_on(storage, index)
