"""Which parts of a network run on our kernels: obstacles, the report of `fuse`, and restoring the original forward.

No Triton is imported here: reports and `unfuse` work without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TypeVar

import torch
from torch import nn

from viaduct.kernels.copies import Copies

KERNELS = "viaduct.kernels."
REPORT = "_viaduct_fuse_report"  # attribute that holds the report, on the network that `fuse` was called with
Network = TypeVar("Network", bound=nn.Module)


@dataclass(frozen=True)
class FuseReport:
    """Parts of a network that run on kernels of viaduct, and parts that do not, with the reasons."""

    fused: tuple[str, ...] = ()  # names of modules
    unfused: tuple[tuple[str, str], ...] = ()  # names of parts that resemble the supported ones, and why not
    obstacle: str | None = None  # why no part of the network has them

    def __str__(self) -> str:
        if self.obstacle is not None:
            return f"no part runs on kernels of viaduct: {self.obstacle}"
        reasons: dict[str, list[str]] = {}
        for name, reason in self.unfused:
            reasons.setdefault(reason, []).append(name)
        lines = [f"{shorten_names(names)}: as written, because {reason}" for reason, names in reasons.items()]
        return "\n".join([f"{len(self.fused)} parts run on kernels of viaduct", *lines])


def shorten_names(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def find_obstacle(network: nn.Module, dtype: torch.dtype) -> str | None:
    """Return why no part of a network can run on our kernels here; None if nothing is known against it."""
    devices = {parameter.device for parameter in network.parameters()}
    kinds = sorted({device.type for device in devices})
    if not devices:
        return "it has no parameters"
    if hasattr(network, "_orig_mod"):
        return "it was compiled by torch.compile, which does not see them; fuse it before"
    if kinds != ["cuda"]:
        return f"they are for cuda, and the model is on {' and '.join(kinds)}"
    if find_spec("triton") is None:
        return "they are written in Triton, which is not installed"
    if torch.version.hip is not None:
        return "they are for NVIDIA cards"
    capability = min(torch.cuda.get_device_capability(device) for device in devices)
    if dtype == torch.bfloat16 and capability < (8, 0):
        return f"this card does not compute in bfloat16 (compute capability {capability[0]}.{capability[1]})"
    return None


def set_report(network: nn.Module, report: FuseReport) -> FuseReport:
    """Store a report as an attribute of the network, outside of its state dict, and return it."""
    setattr(network, REPORT, report)
    return report


def is_fused(module: nn.Module) -> bool:
    """Return True if the module's forward was replaced by one of our kernels; others may replace it, too."""
    replaced = vars(module).get("forward")
    return isinstance(replaced, partial) and str(getattr(replaced.func, "__module__", "")).startswith(KERNELS)


def unfuse(network: Network) -> Network:
    """Restore the original forward of every fused part, remove the report and the hooks, and return the network."""
    for module in network.modules():
        if is_fused(module):
            del module.forward
        vars(module).pop(REPORT, None)
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            for key in [key for key, hook in hooks.items() if isinstance(getattr(hook, "__self__", None), Copies)]:
                del hooks[key]
                module._forward_hooks_always_called.pop(key, None)
    return network


def read_report(network: nn.Module) -> FuseReport | None:
    """Return the report of the last `fuse` of a network, or of a network inside this wrapper; None without one."""
    reports = (vars(module).get(REPORT) for module in network.modules())
    return next((report for report in reports if report is not None), None)
