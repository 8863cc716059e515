"""Annotations around the forward pass of every module, while operators are recorded.

    hooks = ModuleHooks()
    hooks.watch(network)       # from now on, if hooks are attached, else from `attach` on
    hooks.attach(); …; hooks.detach()

A module that torch.compile compiled is annotated as a whole: hooks inside of it would be compiled, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.profiler import record_function

from viaduct.profiling.trace_context import MODULE

WRAPPERS = {"DistributedDataParallel": "module", "DataParallel": "module", "OptimizedModule": "_orig_mod"}
"""Modules around a network, and the name under which they hold it."""


class ModuleHooks:
    """Hooks that annotate the forward pass of the modules of some networks."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.modules: list[nn.Module] = []
        self.roots: list[nn.Module] = []
        self.handles: list[Any] = []
        self.open: list[tuple[int, record_function]] = []
        self.attached = False

    def watch(self, root: nn.Module) -> None:
        """Add a network; a second one's modules carry the name of its class in front."""
        if id(root) in self.names:
            return
        prefix = f"{type(root).__name__}." if self.roots else ""
        self.roots.append(root)
        for name, module in list_modules(root):
            if id(module) not in self.names:
                self.names[id(module)] = (prefix + name).rstrip(".")
                self.modules.append(module)
                if self.attached:
                    self.hook(module)

    def attach(self) -> None:
        """Begin to annotate."""
        self.attached = True
        for module in self.modules:
            self.hook(module)

    def detach(self) -> None:
        """Remove all hooks."""
        self.attached = False
        for handle in self.handles:
            handle.remove()
        self.handles.clear()
        self.open.clear()

    def hook(self, module: nn.Module) -> None:
        """Add the two hooks of one module."""
        self.handles.append(module.register_forward_pre_hook(self.enter))
        self.handles.append(module.register_forward_hook(self.leave, always_call=True))

    def enter(self, module: nn.Module, inputs: Any) -> None:
        """Open the annotation of a module."""
        if torch.compiler.is_compiling():
            return
        annotation = record_function(MODULE + self.names[id(module)])
        annotation.__enter__()  # type: ignore[no-untyped-call]
        self.open.append((id(module), annotation))

    def leave(self, module: nn.Module, inputs: Any, output: Any) -> None:
        """Close the annotation of a module; those that an error left open inside of it, too."""
        if torch.compiler.is_compiling():
            return
        if all(opened != id(module) for opened, _ in self.open):
            return  # attached while the module was running
        while self.open:
            opened, annotation = self.open.pop()
            annotation.__exit__(None, None, None)
            if opened == id(module):
                return


def list_modules(root: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules that can be annotated, with the network's own names for them."""
    if isinstance(root, torch.jit.ScriptModule):
        return
    held = WRAPPERS.get(type(root).__name__)
    if held == "module" and isinstance(inner := getattr(root, held, None), nn.Module):
        yield from list_modules(inner, name)
        return
    if getattr(root, "_compiled_call_impl", None) is None:
        yield name or type(getattr(root, held or "", root)).__name__, root
    if is_compiled(root):
        return
    for child_name, child in root.named_children():
        yield from list_modules(child, f"{name}.{child_name}" if name else child_name)


def is_compiled(module: nn.Module) -> bool:
    """Return True for what torch.compile(module) returned, and after module.compile()."""
    return type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None
