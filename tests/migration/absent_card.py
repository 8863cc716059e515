"""torch_npu or torch_mlu on a machine without a card: importing it works, asking for a card says that there is none.

It has the parts of the plug-ins that migrated scripts use until they take the CPU branch. Tests with it show that the
migrated text's imports, names and branches fit together, not how it runs on a device.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

NONE_HERE: dict[str, Any] = {"is_available": False, "device_count": 0, "_is_in_bad_fork": False}
IGNORED = ("manual_seed", "manual_seed_all", "seed_all", "empty_cache", "synchronize", "set_compile_mode")

SETTINGS = {
    "npu": {"npu": ("config", "matmul", "conv")},
    "mlu": {"backends": ("mlu.matmul", "cnnl", "mlufusion")},
}


def pretend(to: str) -> None:
    """Register a plug-in in this process; only one is possible, because torch takes one new name for a backend."""
    torch.utils.rename_privateuse1_backend(to)
    plugin, card = ModuleType(f"torch_{to}"), ModuleType(f"torch_{to}.{to}")
    for name, answer in NONE_HERE.items():
        setattr(card, name, lambda answer=answer: answer)
    for name in IGNORED:
        setattr(card, name, lambda *args, **options: None)
    card.FloatTensor = torch.FloatTensor  # type: ignore[attr-defined]
    card.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]  # type: ignore[attr-defined]
    for parent, names in SETTINGS[to].items():
        settings(card if parent == to else torch.backends, names)
    card.amp = amp(to)  # type: ignore[attr-defined]
    setattr(plugin, to, card)
    plugin.profiler = torch.profiler  # type: ignore[attr-defined]
    torch._register_device_module(to, card)
    torch.utils.generate_methods_for_privateuse1_backend()  # tensor.is_npu, tensor.npu() …
    found = {f"torch_{to}": plugin, f"torch_{to}.{to}": card, f"torch_{to}.{to}.amp": card.amp}
    sys.modules.update({**found, f"torch_{to}.profiler": torch.profiler})


def settings(module: Any, names: tuple[str, ...]) -> None:
    """Add modules whose attributes a script may set."""
    for name in names:
        first, *inner_names = name.split(".")
        parent = SimpleNamespace(**{inner: SimpleNamespace() for inner in inner_names})
        setattr(getattr(module, "m", module), first, parent)  # torch.backends keeps itself under `m`


def amp(to: str) -> ModuleType:
    """Return an amp module with torch's own classes for this device."""
    module = ModuleType(f"torch_{to}.{to}.amp")
    module.autocast = lambda **options: torch.autocast(to, **options)  # type: ignore[attr-defined]
    module.GradScaler = lambda **options: torch.amp.GradScaler(to, **options)  # type: ignore[attr-defined]
    return module
