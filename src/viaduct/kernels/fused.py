"""What of a network runs on our kernels: obstacles, the report of `fuse`, taking the kernels out again.

No Triton is imported here: a model is asked and unfused also where none is installed.
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
REPORT = "_viaduct_fuse_report"  # the attribute of the network that `fuse` was called with
Network = TypeVar("Network", bound=nn.Module)


@dataclass(frozen=True)
class FuseReport:
    """Parts of a network that run on kernels of viaduct, and parts that do not, with the reasons."""

    fused: tuple[str, ...] = ()  # names of modules
    unfused: tuple[tuple[str, str], ...] = ()  # names of parts that resemble what the kernels are for, and reasons
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
    """Keep a report with the network; it is no part of its state."""
    setattr(network, REPORT, report)
    return report


def is_fused(module: nn.Module) -> bool:
    """Return True if its forward pass runs on kernels of our own; guards set a forward on the instance, too."""
    own = vars(module).get("forward")
    return isinstance(own, partial) and str(getattr(own.func, "__module__", "")).startswith(KERNELS)


def unfuse(network: Network) -> Network:
    """Let every part of the network run as it is written."""
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
    """Return the report of the last `fuse`, also of a network that was wrapped afterwards; None if there was none."""
    reports = (vars(module).get(REPORT) for module in network.modules())
    return next((report for report in reports if report is not None), None)
