"""`torch.npu.FloatTensor` and its kin: constructors from before torch.device, and types to ask `isinstance` with."""

from __future__ import annotations

from typing import Any

import torch

from viaduct.rehearsal.torch_stage.cards import card_of, cards

DTYPES = {
    "Float": torch.float32,
    "Double": torch.float64,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
}


class TensorType(type):
    """The class of such a type: calling it makes a tensor, and instances are the card's tensors of its dtype."""

    dtype: torch.dtype

    def __call__(cls, *args: Any, device: Any = None) -> torch.Tensor:
        target = torch.device(cards.name) if device is None else torch.device(device)
        if len(args) == 1 and not isinstance(args[0], int | torch.Size):
            return torch.as_tensor(args[0], dtype=cls.dtype).to(target)
        return torch.empty(*args, dtype=cls.dtype, device=target)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch.Tensor) and card_of(instance) >= 0 and instance.dtype is cls.dtype


class StorageType(type):
    """The same for storages, by number of elements or from a list."""

    dtype: torch.dtype

    def __call__(cls, *args: Any, device: Any = None) -> Any:
        tensor = (
            torch.empty(*args, dtype=cls.dtype) if args and isinstance(args[0], int) else torch.tensor(*args or ([],))
        )
        moved: Any = tensor.to(cls.dtype).to(cards.name if device is None else device)
        return moved.storage()

    def __instancecheck__(cls, instance: Any) -> bool:
        return (
            isinstance(instance, torch.TypedStorage)
            and instance.dtype is cls.dtype
            and instance.device.type == cards.name
        )


def types() -> dict[str, Any]:
    """FloatTensor, FloatStorage …, made for the device's name."""
    module = f"torch.{cards.name}"
    made: dict[str, Any] = {}
    for type_name, dtype in DTYPES.items():
        body = {"dtype": dtype, "__module__": module}
        made[f"{type_name}Tensor"] = TensorType(f"{type_name}Tensor", (), dict(body))
        made[f"{type_name}Storage"] = StorageType(f"{type_name}Storage", (), dict(body))
    return made
