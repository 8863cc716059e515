"""torch.save and torch.load of a card's storages."""

from __future__ import annotations

from typing import Any

import torch

from viaduct.rehearsal.torch_stage import control
from viaduct.rehearsal.torch_stage.cards import cards
from viaduct.rehearsal.torch_stage.tensors import put_storage_on_card

_PRIORITY = 5  # before PyTorch's own functions, whose priorities begin at 10


def install(device_name: str = "") -> None:
    """Register functions that tag and restore storages; files name the device `device_name`, by default the card's."""
    device_name = device_name or cards.device_name

    def tag(storage: Any) -> str | None:
        device = storage.device
        return f"{device_name}:{device.index}" if device.type in (cards.device_name, device_name) else None

    def restore(storage: Any, location: str) -> Any:
        """Return a loaded storage on its card; None for a storage of another device."""
        name, _, number = location.partition(":")
        if name != device_name:
            return None
        index = int(number) if number else cards.current_index
        count = control.device_count()
        if index >= count:
            raise RuntimeError(
                f"Attempting to deserialize object on {device_name.upper()} device {index} but "
                f"torch.{device_name}.device_count() is {count}. Please use torch.load with map_location "
                "to map your storages to an existing device."
            )
        return put_storage_on_card(storage, index)

    torch.serialization.register_package(_PRIORITY, tag, restore)
