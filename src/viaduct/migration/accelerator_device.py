"""Whatever accelerator this machine has: an NVIDIA GPU, an Ascend NPU, a Cambricon MLU; without one, the CPU.

Written by `viaduct migrate --to any`, with what the scripts here use; yours to change. It needs torch 2.1 or later.
`accelerator.X` is torch.cuda.X, torch.npu.X or torch.mlu.X; on the CPU it does what a script needs to go on.
"""

import importlib.util
from contextlib import nullcontext
from time import perf_counter
from typing import Any

import torch

for plugin in ("torch_npu", "torch_mlu"):  # importing them registers their devices with torch
    if importlib.util.find_spec(plugin):
        importlib.import_module(plugin)

# Results of torch.cuda's functions on the CPU.
ON_THE_CPU = {
    "is_available": False,
    "is_initialized": False,
    "is_bf16_supported": False,
    "device_count": 0,
    "utilization": 0,
    "memory_allocated": 0,
    "max_memory_allocated": 0,
    "memory_reserved": 0,
    "max_memory_reserved": 0,
    "memory_cached": 0,
    "max_memory_cached": 0,
    "set_device": None,
    "init": None,
    "empty_cache": None,
    "ipc_collect": None,
    "reset_peak_memory_stats": None,
    "reset_accumulated_memory_stats": None,
    "reset_max_memory_allocated": None,
    "reset_max_memory_cached": None,
    "set_per_process_memory_fraction": None,
    "manual_seed": None,
    "manual_seed_all": None,
    "seed": None,
    "seed_all": None,
    "set_rng_state_all": None,
    "mem_get_info": (0, 0),
    "memory_summary": "",
    "get_device_name": "CPU",
    "current_device": "cpu",
}


class AnyAccelerator:
    TYPES = ("cuda", "npu", "mlu")  # device types: `device.type in accelerator.TYPES`
    BACKENDS = ("nccl", "hccl", "cncl")  # of their collectives
    found = ""

    def name(self, where: Any = None) -> str:
        """`cuda`, or `cuda:1` for 1; a device or its name stays as it is. Without a card `cpu`, whatever the number."""
        if not self.found:  # device_count does not initialise a device, so processes may still be forked
            kinds = [kind for kind in self.TYPES if hasattr(torch, kind) and getattr(torch, kind).device_count()]
            self.found = kinds[0] if kinds else "cpu"
        text = "" if where is None else str(where)
        if text and not text.isdigit():
            return text
        return f"{self.found}:{text}" if text and self.found != "cpu" else self.found

    def device(self, where: Any = None) -> torch.device:
        return torch.device(self.name(where))

    def card(self, *number: Any) -> str:
        """Return the device name for comparisons; without a card CUDA's, which no device there has."""
        return ":".join([self.TYPES[0] if self.name() == "cpu" else self.name(), *map(str, number)])

    @property
    def types(self) -> Any:
        """Module of FloatTensor and others, for isinstance; without a card CUDA's, which no tensor there has."""
        return getattr(torch, self.card())

    def backend(self) -> str:
        """Return the backend for torch.distributed."""
        return "gloo" if self.name() == "cpu" else self.BACKENDS[self.TYPES.index(self.name())]

    def unless_cpu(self, value: Any) -> Any:
        """Return the value, or None on the CPU: for device_ids and the like."""
        return None if self.name() == "cpu" else value

    def map_location(self) -> Any:
        """Return map_location for torch.load: None on CUDA, else the host."""
        return None if self.name() == "cuda" else "cpu"

    def activity(self) -> Any:
        """Return the card's activity for torch.profiler; the host's if it has none (torch_npu has its own profiler)."""
        known = torch.profiler.ProfilerActivity
        return getattr(known, self.name().upper(), known.CPU)

    def autocast(self, enabled: bool = True, dtype: Any = None, cache_enabled: Any = None) -> Any:
        """Return autocast with the arguments of torch.cuda.amp.autocast; disabled on the CPU."""
        enabled, dtype = (enabled, dtype) if self.name() != "cpu" else (False, None)
        return torch.autocast(self.card(), dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)

    def GradScaler(self, *args: Any, **options: Any) -> Any:
        """Return a scaler with the arguments of torch.cuda.amp.GradScaler; disabled on the CPU."""
        if self.name() == "cpu":
            args, options = (), {"enabled": False}
        if self.name() in ("cuda", "cpu") and hasattr(torch.amp, "GradScaler"):  # since torch 2.3
            return torch.amp.GradScaler(self.name(), *args, **options)
        return self.amp.GradScaler(*args, **options)

    @property
    def amp(self) -> Any:
        return getattr(torch, self.card()).amp

    @property
    def device_index(self) -> Any:
        """`with torch.cuda.device(1):`"""
        return nullcontext if self.name() == "cpu" else getattr(torch, self.name()).device

    @property
    def device_of(self) -> Any:
        return nullcontext if self.name() == "cpu" else getattr(torch, self.name()).device_of

    @property
    def Event(self) -> Any:
        return HostEvent if self.name() == "cpu" else getattr(torch, self.name()).Event

    @property
    def get_rng_state(self) -> Any:
        """The CPU has one generator, and its functions take no device."""
        if self.name() == "cpu":
            return lambda device=None: torch.get_rng_state()
        return getattr(torch, self.name()).get_rng_state

    @property
    def set_rng_state(self) -> Any:
        if self.name() == "cpu":
            return lambda state, device=None: torch.set_rng_state(state)
        return getattr(torch, self.name()).set_rng_state

    def __getattr__(self, name: str) -> Any:
        if self.name() != "cpu":
            return getattr(getattr(torch, self.name()), name)
        if name in ON_THE_CPU:
            return lambda *args, **options: ON_THE_CPU[name]
        modules = (torch.cpu, torch)  # synchronize, Stream; FloatTensor; all others as torch.cuda without a card
        return getattr(next((module for module in modules if hasattr(module, name)), torch.cuda), name)


class HostEvent:
    """Event of the CPU, where calls return after their work is done."""

    def __init__(self, **options: Any) -> None:
        self.time = 0.0

    def record(self, stream: Any = None) -> None:
        self.time = perf_counter()

    def elapsed_time(self, end: Any) -> float:
        return 1000.0 * float(end.time - self.time)

    def wait(self, stream: Any = None) -> bool:
        return True

    synchronize = query = wait


accelerator = AnyAccelerator()
