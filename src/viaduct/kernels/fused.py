"""What of a network runs on our kernels: the report of `fuse`, and taking the kernels out again. No Triton here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TypeVar

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
        lines = [f"{name}: as written, because {reason}" for name, reason in self.unfused]
        return "\n".join([f"{len(self.fused)} parts run on kernels of viaduct", *lines])


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
