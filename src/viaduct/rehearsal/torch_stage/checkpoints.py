"""torch.save and torch.load of a card's storages, which are loaded onto the card again."""

from __future__ import annotations

import functools
from typing import Any

import torch

from viaduct.rehearsal.torch_stage import control
from viaduct.rehearsal.torch_stage.cards import cards
from viaduct.rehearsal.torch_stage.tensors import storage_on

_BEFORE_ALL = 5  # priority; PyTorch's own begin at 10


def install(written: str = "") -> None:
    """Register how storages are tagged and restored; `written` is the device's name in files, by default its own."""
    device_name = written or cards.name

    def tag(storage: Any) -> str | None:
        device = storage.device
        return f"{device_name}:{device.index}" if device.type in (cards.name, device_name) else None

    restore = functools.partial(_restore_storage, device_name=device_name)
    torch.serialization.register_package(_BEFORE_ALL, tag, restore)


def _restore_storage(storage: Any, location: str, device_name: str) -> Any:
    """Return a loaded storage on the card that its file names; None for another device's."""
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
