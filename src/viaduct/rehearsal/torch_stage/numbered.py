"""A bare number as a device, wherever PyTorch is given one: `torch.zeros(2, device=0)`, `torch.device(0)`.

Only the NPU refuses it. Factories are compiled, and torch.device cannot be replaced by a class of ours (scripts ask
isinstance of it), so calls into torch are looked at as they pass.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from viaduct.rehearsal import limits
from viaduct.rehearsal.torch_stage.cards import cards
from viaduct.rehearsal.torch_stage.tensors import refuse_number


class NumbersAreRefused(TorchFunctionMode):
    """Every call into torch; a number for a factory's device is told, and goes on as PyTorch would take it."""

    def __init__(self) -> None:
        super().__init__()
        self.factories = factories()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.device:
            check(args[0] if args else (kwargs or {}).get("device"))
        elif kwargs and "device" in kwargs and func in self.factories:
            check(kwargs["device"])
        return func(*args, **kwargs) if kwargs else func(*args)


def check(device: Any) -> None:
    """Where the vendor's patch is imported, cuda means the card, and so does a number."""
    if isinstance(device, int) and not isinstance(device, bool) and "cuda" not in cards.names:
        refuse_number(device)


@functools.cache
def factories() -> frozenset[Any]:
    """`torch.zeros`, `torch.zeros_like`, `x.new_zeros`; not `x.npu(0)`, whose number is a card's."""
    like = [getattr(torch, name) for name in dir(torch) if name.endswith("_like")]
    new = [getattr(torch.Tensor, name) for name in dir(torch.Tensor) if name.startswith("new_")]
    return frozenset([*_device_constructors(), *like, *new])


def install() -> None:
    """In this thread, and in those that it starts."""
    if cards.name != "npu" or limits.mode("int-device") == "off":
        return
    mode: Any = NumbersAreRefused()
    mode.__enter__()
    run = threading.Thread.run

    def run_watched(self: threading.Thread) -> None:
        with NumbersAreRefused():
            run(self)

    threading.Thread.run = run_watched  # type: ignore[method-assign]
