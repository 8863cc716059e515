"""`torch.npu.FloatTensor` and the like: constructors older than torch.device, which are also types for isinstance."""

from __future__ import annotations

from typing import Any

import torch

from viaduct.rehearsal.torch_stage.cards import cards, get_card_index

DTYPE_OF_PREFIX = {
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
    """Metaclass of tensor types: a call makes a tensor, and the card's tensors of its dtype are its instances."""

    dtype: torch.dtype

    def __call__(cls, *args: Any, device: Any = None) -> torch.Tensor:
        target = torch.device(cards.device_name) if device is None else torch.device(device)
        if len(args) == 1 and not isinstance(args[0], int | torch.Size):
            return torch.as_tensor(args[0], dtype=cls.dtype).to(target)
        return torch.empty(*args or (0,), dtype=cls.dtype, device=target)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch.Tensor) and get_card_index(instance) >= 0 and instance.dtype is cls.dtype


class StorageType(type):
    """Metaclass of storage types, which are called with a number of elements or a list of values."""

    dtype: torch.dtype

    def __call__(cls, *args: Any, device: Any = None) -> Any:
        has_size = args and isinstance(args[0], int)
        tensor = torch.empty(*args, dtype=cls.dtype) if has_size else torch.tensor(*args or ([],))
        moved: Any = tensor.to(cls.dtype).to(cards.device_name if device is None else device)
        return moved.storage()

    def __instancecheck__(cls, instance: Any) -> bool:
        return (
            isinstance(instance, torch.TypedStorage)
            and instance.dtype is cls.dtype
            and instance.device.type == cards.device_name
        )


def make_types() -> dict[str, Any]:
    """Return FloatTensor, FloatStorage and so on for the device."""
    types: dict[str, Any] = {}
    for metaclass, suffix in ((TensorType, "Tensor"), (StorageType, "Storage")):
        for prefix, dtype in DTYPE_OF_PREFIX.items():
            body = {"dtype": dtype, "__module__": f"torch.{cards.device_name}"}
            types[prefix + suffix] = metaclass(prefix + suffix, (), body)
    return types
