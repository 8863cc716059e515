"""`torch.accelerator` and backward passes, where PyTorch's guard for a device from Python knows one card only."""

from __future__ import annotations

import functools
from typing import Any

import torch

from viaduct.rehearsal.torch_stage import control, memory, streams
from viaduct.rehearsal.torch_stage.cards import cards


def register() -> None:
    """Tell PyTorch's C++ that the device is there. Releases before 2.13 have no such classes, so not above."""
    door: Any = torch._C._acc
    answers = dict.fromkeys(("is_available", "is_built", "has_primary_context"), lambda self, *index: True)
    kind = torch._C._autograd.DeviceType.PrivateUse1
    door.register_python_privateuseone_hook(type("Hooks", (door.PrivateUse1Hooks,), answers)())
    door.register_python_privateuseone_device_guard(type("Guard", (door.DeviceGuard,), {"type_": lambda self: kind})())


def install() -> None:
    _backward_in_the_callers_thread()
    own = {
        "device_count": control.device_count,
        "current_device_index": control.current_device,
        "current_device_idx": control.current_device,
        "set_device_index": control.set_device,
        "set_device_idx": control.set_device,
        "current_stream": streams.current_stream,
        "set_stream": streams.set_stream,
        "synchronize": control.synchronize,
        "is_available": control.is_available,
        "current_accelerator": _current,
    }
    counters = ("memory_stats", "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
    own |= {name: getattr(memory, name) for name in (*counters, "reset_peak_memory_stats", "empty_cache")}
    own |= {"reset_accumulated_memory_stats": memory.reset_accumulated_memory_stats}
    own |= {"get_memory_info": memory.mem_get_info}
    for name, function in own.items():
        setattr(torch.accelerator, name, function)


def _current(check_available: bool = False) -> torch.device | None:
    return None if check_available and not control.is_available() else torch.device(cards.public_name)


def _backward_in_the_callers_thread() -> None:
    """Autograd has a thread for each card it knows of, which is one; the caller's own serves them all."""
    run: Any = torch.autograd.graph._engine_run_backward

    @functools.wraps(run)
    def run_backward(*args: Any, **kwargs: Any) -> Any:
        with torch.autograd.set_multithreading_enabled(False):
            return run(*args, **kwargs)

    torch.autograd.graph._engine_run_backward = run_backward
    torch.autograd._engine_run_backward = run_backward  # type: ignore[attr-defined]
