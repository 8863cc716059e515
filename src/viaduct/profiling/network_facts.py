"""Facts of a network from one training pass: its class, batch, precision and device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn


WRAPPERS = {"DistributedDataParallel": "module", "DataParallel": "module", "OptimizedModule": "_orig_mod"}
"""Classes of modules that wrap a network, and the attribute that holds the network."""


@dataclass(frozen=True)
class NetworkFacts:
    """Facts of the first training pass of a script."""

    network: str
    batch: int | None  # number of samples in a pass: the length of the first tensor's first dimension
    precision: str
    passes: int = 1  # number of passes in a step; more than one if gradients are accumulated

    @property
    def samples_per_step(self) -> int | None:
        return None if self.batch is None else self.batch * self.passes


def describe_pass(module: nn.Module, args: Any, kwargs: Any) -> NetworkFacts:
    """Return the facts of a network from its parameters and the arguments of a call."""
    weight = next(module.parameters())
    tensor = find_tensor([*args, *kwargs.values()])
    return NetworkFacts(
        network=type(unwrap(module)).__name__,
        batch=int(tensor.shape[0]) if tensor is not None and tensor.ndim else None,
        precision=describe_precision(weight),
    )


def unwrap(module: Any) -> Any:
    """Return the network inside modules of the classes in WRAPPERS."""
    attribute = WRAPPERS.get(type(module).__name__)
    return unwrap(getattr(module, attribute)) if attribute else module


def find_tensor(values: Any, depth: int = 3) -> torch.Tensor | None:
    """Return the first tensor among values, including up to `depth` levels of lists and dictionaries."""
    import torch

    for value in values:
        if isinstance(value, torch.Tensor):
            return value
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
        tensor = find_tensor(inner, depth - 1) if depth else None
        if tensor is not None:
            return tensor
    return None


def describe_precision(weight: torch.Tensor) -> str:
    """Return the dtype of autocast if it is on, else the dtype of the weight."""
    import torch

    kind = weight.device.type
    if torch.is_autocast_enabled(kind):
        return f"autocast {torch.get_autocast_dtype(kind)}".replace("torch.", "")
    return str(weight.dtype).removeprefix("torch.")


def find_used_device() -> str:
    """Return the accelerator that this process has initialised, or cpu."""
    import torch

    for kind in ("npu", "mlu", "cuda"):
        vendor: Any = getattr(torch, kind, None)
        if vendor is not None and getattr(vendor, "is_initialized", lambda: False)():
            return kind
    return "cpu"


def is_capturing(kind: str) -> bool:
    """Return True while a graph is captured on the device: events recorded into a graph cannot be read."""
    if kind == "cpu":
        return False
    import torch

    is_stream_capturing = getattr(getattr(torch, kind), "is_current_stream_capturing", lambda: False)
    return bool(is_stream_capturing())
