"""A script run as if this machine had two CUDA cards, and a record of all that it asks of them.

What goes to a card is written down and stays on the CPU: moves, new tensors with a device, calls of torch.cuda,
autocast and scalers, loaders, checkpoints, process groups. Two scripts that leave the same record do the same on CUDA.
Spellings of one thing count as one: `.cuda(1)` and `.to("cuda:1")` are the same move.
"""

from __future__ import annotations

import functools
import inspect
import os
import runpy
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

RECORD: list[str] = []
FAKED: dict[str, Any] = {
    **{"is_available": True, "device_count": 2, "current_device": 0, "is_bf16_supported": True},
    **{"get_device_name": "Pretended", "get_device_capability": (9, 0), "is_initialized": True},
    **dict.fromkeys(("set_device", "synchronize", "empty_cache", "reset_peak_memory_stats", "ipc_collect")),
    **dict.fromkeys(("manual_seed", "manual_seed_all", "set_rng_state_all", "set_rng_state")),
    **dict.fromkeys(("memory_allocated", "max_memory_allocated", "memory_reserved"), 0),
    **{"get_rng_state_all": [torch.zeros(2, dtype=torch.uint8)], "get_rng_state": torch.zeros(2, dtype=torch.uint8)},
}


def note(*words: object) -> None:
    RECORD.append(" ".join(map(str, words)))


def run(script: Path, words: list[str]) -> list[str]:
    """Return the record of `python SCRIPT WORDS`."""
    warnings.simplefilter("ignore")
    os.chdir(script.parent)
    sys.path.insert(0, str(script.parent))
    sys.argv = [str(script), *words]
    pretend(script.parent)
    with Moves():
        runpy.run_path(str(script), run_name="__main__")
    return RECORD


def pretend(folder: Path) -> None:
    for name, answer in FAKED.items():
        setattr(torch.cuda, name, record_calls(name, answer, folder))
    for name in ("FloatTensor", "LongTensor"):
        setattr(torch.cuda, name, record_calls(name, getattr(torch, name), folder))
    torch.cuda.Event = PretendedEvent  # type: ignore[assignment, misc]
    torch.nn.DataParallel = torch.nn.parallel.DataParallel = Wrapped  # type: ignore[assignment, misc]
    torch.nn.parallel.DistributedDataParallel = Wrapped  # type: ignore[assignment, misc]
    pretend_amp()
    pretend_io()


def record_calls(name: str, answer: Any, folder: Path) -> Callable[..., Any]:
    """Record calls of the script itself, not those of torch, nor the helper's count of the cards."""

    def call(*args: Any, **options: Any) -> Any:
        caller = sys._getframe(1).f_code
        by_script = caller.co_filename.startswith(str(folder))
        if by_script and not caller.co_filename.endswith("accelerator_device.py"):
            note(f"torch.cuda.{name}", *map(plain, args), *sorted(options))
        return answer(*args, **options) if callable(answer) else answer

    return call


def plain(value: Any) -> str:
    """Return one spelling of a device, its type and number; of a tensor, its shape."""
    if isinstance(value, torch.Tensor):
        return f"tensor{tuple(value.shape)}"
    if isinstance(value, dict):
        return str(sorted((plain(key), plain(held)) for key, held in value.items()))
    return str(value)


def where(device: Any) -> str:
    """`cuda` or `cuda:1`."""
    if device is None:
        return "cuda"
    return f"cuda:{device}" if isinstance(device, int) else str(torch.device(device))


class Moves(TorchFunctionMode):
    """Record `.cuda`, `.to` and functions that are called with a device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.Tensor.to, torch._C._nn._parse_to):
            args = tuple(
                torch.device("cuda", argument) if type(argument) is int else argument for argument in args
            )  # a number is a card
        if func is torch.Tensor.pin_memory:
            note("pin", tuple(args[0].shape))
            return args[0]
        if func is torch.Tensor.cuda:
            return self.moved(args[0], *args[1:], **kwargs)
        if func is torch.Tensor.to:
            device, dtype, non_blocking, _ = torch._C._nn._parse_to(*args[1:], **kwargs)
            if device is not None and device.type == "cuda":
                self.moved(args[0], device, non_blocking)
                return args[0] if dtype is None else func(args[0], dtype)
        if str(kwargs.get("device")).startswith("cuda"):
            note("make", func.__name__, where(kwargs["device"]))
            kwargs = {**kwargs, "device": "cpu"}
        return func(*args, **kwargs)

    def moved(self, tensor: torch.Tensor, device: Any = None, non_blocking: bool = False) -> torch.Tensor:
        note("move", tuple(tensor.shape), where(device), non_blocking)
        return tensor


class PretendedEvent:
    def __init__(self, **options: Any) -> None:
        note("event", options)

    def record(self) -> None:
        note("event recorded")

    def elapsed_time(self, other: Any) -> float:
        note("event asked")
        return 1.0


class Wrapped(torch.nn.Module):
    """Base of both parallel wrappers; records the arguments."""

    def __init__(self, module: torch.nn.Module, **options: Any) -> None:
        super().__init__()
        note("wrap", sorted((name, plain(value)) for name, value in options.items()))
        self.module = module

    def forward(self, *args: Any) -> Any:
        return self.module(*args)


def pretend_amp() -> None:
    from torch.amp import autocast_mode, grad_scaler

    real, scaler = autocast_mode.autocast.__init__, grad_scaler.GradScaler.__init__

    def autocast(
        self: Any, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: Any = None
    ) -> None:
        half = torch.float16 if dtype is None else dtype  # CUDA's own default
        note("autocast", device_type, half, enabled, cache_enabled is not False)
        real(self, "cpu", enabled=False)

    @functools.wraps(scaler)
    def scale(self: Any, *args: Any, **options: Any) -> None:
        given = inspect.signature(scaler).bind(self, *args, **options)
        given.apply_defaults()
        note("scaler", *(f"{name}={value}" for name, value in given.arguments.items() if name != "self"))
        scaler(self, "cpu", enabled=False)

    autocast_mode.autocast.__init__ = autocast  # type: ignore[method-assign, assignment]
    grad_scaler.GradScaler.__init__ = scale  # type: ignore[method-assign]


def pretend_io() -> None:
    loader, load = torch.utils.data.DataLoader.__init__, torch.load
    group, profile = torch.distributed.init_process_group, torch.profiler.profile.__init__

    def make_loader(self: Any, *args: Any, pin_memory: bool = False, pin_memory_device: str = "", **rest: Any) -> None:
        note("loader", pin_memory, pin_memory_device)
        loader(self, *args, **rest)

    def read(file: Any, map_location: Any = None, **options: Any) -> Any:
        note("load", Path(str(file)).name, plain(map_location))
        return load(file, map_location="cpu", **options)

    def begin_group(backend: Any = None, *args: Any, **options: Any) -> None:
        note("group", backend, sorted(options))
        group("gloo", *args, **options)

    def watch(self: Any, *args: Any, activities: Any = None, **options: Any) -> None:
        note("profile", sorted(str(activity) for activity in activities or ()))
        profile(self, *args, activities=[torch.profiler.ProfilerActivity.CPU], **options)

    torch.utils.data.DataLoader.__init__ = make_loader  # type: ignore[method-assign]
    torch.load = read
    torch.distributed.init_process_group = begin_group
    torch.profiler.profile.__init__ = watch  # type: ignore[method-assign]
