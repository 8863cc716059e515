"""Report of the parts of a network that run on our kernels, and removal of the kernels. Triton is not imported."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TypeVar

import torch
from torch import nn

from viaduct.kernels.copies import Copies

KERNELS = "viaduct.kernels."  # beginning of the modules' names whose functions replace a forward
REPORT = "_viaduct_fuse_report"  # attribute that holds the report, on the network that `fuse` was called with
Network = TypeVar("Network", bound=nn.Module)


@dataclass(frozen=True)
class FuseReport:
    """Parts of a network that run on kernels of viaduct, and similar parts that do not."""

    fused: tuple[str, ...] = ()  # names of modules
    unfused: tuple[tuple[str, str], ...] = ()  # (name, reason) of similar modules that the kernels do not support
    obstacle: str | None = None  # reason why no part of the network can run on them

    def __str__(self) -> str:
        if self.obstacle is not None:
            return f"no part runs on kernels of viaduct: {self.obstacle}"
        reasons: dict[str, list[str]] = {}
        for name, reason in self.unfused:
            reasons.setdefault(reason, []).append(name)
        lines = [f"{len(self.fused)} parts run on kernels of viaduct"]
        for reason, (first, *others) in reasons.items():
            more = f" and {len(others)} more" if others else ""
            lines.append(f"{first}{more}: as written, because {reason}")
        return "\n".join(lines)


def find_obstacle(network: nn.Module, dtype: torch.dtype) -> str | None:
    """Return the reason why no part of a network can run on our kernels on this machine, or None."""
    devices = {parameter.device for parameter in network.parameters()}
    kinds = sorted({device.type for device in devices})
    if not devices:
        return "the model has no parameters"
    if hasattr(network, "_orig_mod"):
        return "the model was compiled by torch.compile, which does not see them; fuse it before"
    if kinds != ["cuda"]:
        return f"they are for cuda, and the model is on {' and '.join(kinds)}"
    if find_spec("triton") is None:
        return "they are written in Triton, which is not installed"
    if torch.version.hip is not None:
        return "they are for NVIDIA cards"
    major, minor = min(torch.cuda.get_device_capability(device) for device in devices)
    if dtype == torch.bfloat16 and major < 8:
        return f"this card does not compute in bfloat16 (compute capability {major}.{minor})"
    return None


def set_report(network: nn.Module, report: FuseReport) -> FuseReport:
    """Store a report as an attribute of the network, outside of its state dict, and return it."""
    setattr(network, REPORT, report)
    return report


def is_fused(module: nn.Module) -> bool:
    """Return True if the module's forward was replaced by one on our kernels."""
    forward = vars(module).get("forward")
    return isinstance(forward, partial) and str(getattr(forward.func, "__module__", "")).startswith(KERNELS)


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
    """Return the report of the last `fuse` of a network or of one of its modules, or None."""
    reports = (vars(module).get(REPORT) for module in network.modules())
    return next((report for report in reports if report is not None), None)
