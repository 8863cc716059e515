"""`torch.accelerator` and backward passes for several cards.

PyTorch's C++ code knows only one card of a device that was registered from Python, so the functions of
torch.accelerator are replaced by the card's.
"""

from __future__ import annotations

from typing import Any

import torch

from viaduct.rehearsal.torch_stage import control, memory, streams
from viaduct.rehearsal.torch_stage.cards import cards
from viaduct.rehearsal.wrapping import wrap


def register() -> None:
    """Register the device with PyTorch's C++ code; needs torch._C._acc, which torch has from 2.13 on."""
    acc: Any = torch._C._acc
    methods = dict.fromkeys(("is_available", "is_built", "has_primary_context"), lambda self, *index: True)
    kind = torch._C._autograd.DeviceType.PrivateUse1  # PyTorch's type for the device of a plug-in
    acc.register_python_privateuseone_hook(type("Hooks", (acc.PrivateUse1Hooks,), methods)())
    acc.register_python_privateuseone_device_guard(type("Guard", (acc.DeviceGuard,), {"type_": lambda self: kind})())


def install() -> None:
    """Replace functions of torch.accelerator, and let backward passes run on all cards."""
    _wrap_backward_passes()
    functions = {
        **dict.fromkeys(("current_device_index", "current_device_idx"), control.current_device),
        **dict.fromkeys(("set_device_index", "set_device_idx"), control.set_device),
        **{name: getattr(control, name) for name in ("device_count", "synchronize", "is_available")},
        **{name: getattr(streams, name) for name in ("current_stream", "set_stream")},
        "current_accelerator": lambda check_available=False: (
            None if check_available and not control.is_available() else torch.device(cards.name_in_script)
        ),
    }
    counters = ("memory_stats", "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
    changes = ("reset_peak_memory_stats", "reset_accumulated_memory_stats", "empty_cache")
    functions |= {name: getattr(memory, name) for name in (*counters, *changes)}
    functions["get_memory_info"] = memory.mem_get_info
    for name, function in functions.items():
        setattr(torch.accelerator, name, function)


def _wrap_backward_passes() -> None:
    """Let backward passes on all cards run in the caller's thread, since autograd has a thread for one card only."""

    @wrap(torch.autograd.graph, "_engine_run_backward")
    def run_backward(plain: Any, *args: Any, **kwargs: Any) -> Any:
        with torch.autograd.set_multithreading_enabled(False):
            return plain(*args, **kwargs)

    torch.autograd._engine_run_backward = run_backward  # type: ignore[attr-defined]
