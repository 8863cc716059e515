"""Annotations around the forward pass of every module, while operators are recorded.

    hooks = ModuleHooks()
    hooks.add_network(network)
    hooks.attach(); …; hooks.detach()

An annotation is called "viaduct.module:layer1.0.conv1"; `trace_context.py` reads it. A module that torch.compile
compiled is annotated as a whole: hooks inside it would be compiled, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.profiler import record_function

from viaduct.profiling.network_facts import WRAPPERS
from viaduct.profiling.trace_context import MODULE_ANNOTATION


class ModuleHooks:
    """Hooks that annotate the forward pass of the modules of some networks."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}  # id of a module -> its name in the trace
        self.modules: list[nn.Module] = []
        self.networks: list[nn.Module] = []
        self.handles: list[Any] = []
        self.open_annotations: list[tuple[int, record_function]] = []  # by module id, innermost last
        self.is_attached = False

    def add_network(self, network: nn.Module) -> None:
        """Add a network; module names of the second and later networks begin with their class."""
        if id(network) in self.names:
            return
        prefix = f"{type(network).__name__}." if self.networks else ""
        self.networks.append(network)
        for name, module in list_modules(network):
            if id(module) not in self.names:
                self.names[id(module)] = (prefix + name).rstrip(".")
                self.modules.append(module)
                if self.is_attached:
                    self.hook_module(module)

    def attach(self) -> None:
        self.is_attached = True
        for module in self.modules:
            self.hook_module(module)

    def detach(self) -> None:
        self.is_attached = False
        for handle in self.handles:
            handle.remove()
        self.handles.clear()
        self.open_annotations.clear()

    def hook_module(self, module: nn.Module) -> None:
        self.handles.append(module.register_forward_pre_hook(self.open_annotation))
        self.handles.append(module.register_forward_hook(self.close_annotation, always_call=True))

    def open_annotation(self, module: nn.Module, inputs: Any) -> None:
        if torch.compiler.is_compiling():
            return
        annotation = record_function(MODULE_ANNOTATION + self.names[id(module)])
        annotation.__enter__()  # type: ignore[no-untyped-call]
        self.open_annotations.append((id(module), annotation))

    def close_annotation(self, module: nn.Module, inputs: Any, output: Any) -> None:
        """Close the annotation of a module, and those that an error left open inside it."""
        if torch.compiler.is_compiling():
            return
        if all(owner != id(module) for owner, _ in self.open_annotations):
            return  # the hooks were attached while the module was running
        owner = None
        while owner != id(module):
            owner, annotation = self.open_annotations.pop()
            annotation.__exit__(None, None, None)


def list_modules(module: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules that can be annotated with their names; the network itself has the name of its class."""
    if isinstance(module, torch.jit.ScriptModule):
        return
    attribute = WRAPPERS.get(type(module).__name__)
    # DistributedDataParallel and DataParallel are not annotated, and do not begin the names of the modules inside.
    if attribute == "module" and isinstance(inner := getattr(module, attribute, None), nn.Module):
        yield from list_modules(inner, name)
        return
    is_compiled_in_place = getattr(module, "_compiled_call_impl", None) is not None  # by module.compile()
    if is_compiled_in_place:  # its own hooks would be compiled
        return
    network = getattr(module, attribute, module) if attribute else module
    yield name or type(network).__name__, module
    if type(module).__name__ == "OptimizedModule":  # the result of torch.compile(module)
        return
    for child_name, child in module.named_children():
        yield from list_modules(child, f"{name}.{child_name}" if name else child_name)
