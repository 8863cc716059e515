"""Watches the modules of a network during one step: inputs, outputs, and the gradients that pass through.

Gradients are caught by hooks on tensors and on autograd's nodes. Module.register_full_backward_hook is not used: it
wraps inputs and outputs, and so forbids modules that work in place and changes what autograd sees.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from viaduct.comparison.capture import Capture, tensors_in
from viaduct.comparison.flow import Edge, Flow, edge_of, exits, used_within
from viaduct.comparison.index import Entry
from viaduct.comparison.naming import ROOT, plain_path
from viaduct.comparison.tensors import Role

PEELED = ("DistributedDataParallel", "DataParallel", "OptimizedModule", "FullyShardedDataParallel", "ScriptModule")


@dataclass
class Call:
    """One call of one module."""

    module: nn.Module
    op: str
    type: str
    number: int
    edges: list[Edge | None] = field(default_factory=list)  # of the inputs, as they were before the call
    versions: list[int] = field(default_factory=list)  # of the inputs, likewise
    entries: list[Entry] = field(default_factory=list)
    backward: dict[tuple[Role, int], Entry] = field(default_factory=dict)
    last_gradient: int = 0


class ModuleWatch:
    """Hooks on every module of one or several networks."""

    def __init__(self, capture: Capture, evaluations: bool = True) -> None:
        self.capture = capture
        self.evaluations = evaluations  # whether passes without gradients belong to the step
        self.flow = Flow()
        self.edges: dict[str, dict[str, None]] = {}
        self.overwritten: set[tuple[str, int]] = set()  # inputs that a module writes to
        self.untold: set[tuple[str, Role, int]] = set()  # gradients that autograd does not keep apart
        self.paused = False  # the optimizer's own work is not that of a module, but for a closure that it calls
        self.stack: list[Call | None] = []
        self.calls: list[Call] = []
        self._count: Counter[str] = Counter()
        self._handles: list[Any] = []
        self._on_gradient: dict[Edge, list[tuple[Call, Role, int]]] = {}

    def watch(self, names: dict[nn.Module, str]) -> None:
        for module, name in names.items():
            before, after = partial(self.before, name), partial(self.after, name)
            self._handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
            self._handles.append(module.register_forward_hook(after, with_kwargs=True))

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        for call in self.calls:
            for entry in call.backward.values():
                entry.order = call.last_gradient

    def before(self, name: str, module: nn.Module, args: Any, kwargs: Any = None) -> None:
        """Where the step ends just before this call, torch asks once more, without the keywords."""
        if self.passing_over():
            self.stack.append(None)
            return
        call = Call(module, name, type(module).__name__, self._count[name])
        self._count[name] += 1
        self.stack.append(call)
        self.calls.append(call)
        for index, tensor in enumerate(tensors_in([args, kwargs])):
            edge = edge_of(tensor)
            call.edges.append(edge)
            call.versions.append(version_of(tensor))
            self.feed(name, tensor, edge)
            self.write(call, "input", index, tensor)

    def passing_over(self) -> bool:
        """Whether this call is none of the step's: within one that is not, or an evaluation, or a second time."""
        if self.stack:
            return self.stack[-1] is None
        again = torch._C._current_graph_task_id() != -1  # activation checkpointing computes it in the backward pass
        return self.paused or again or not (self.evaluations or torch.is_grad_enabled())

    def after(self, name: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        call = self.stack.pop() if self.stack else None
        while call is not None and call.module is not module and self.stack:
            call = self.stack.pop()  # a module within ended in an exception that somebody caught
        if call is None or call.module is not module:
            return
        inputs = tensors_in([args, kwargs])
        for index, tensor in enumerate(inputs[len(call.edges) :], len(call.edges)):
            self.write(call, "input", index, tensor)  # keywords that `before` was not told of
        versions = zip(inputs, call.versions, strict=False)
        places = (index for index, (tensor, version) in enumerate(versions) if version_of(tensor) != version)
        self.overwritten.update((name, index) for index in places)
        outputs = [(tensor, edge_of(tensor)) for tensor in tensors_in(output)]
        for index, (tensor, edge) in enumerate(outputs):
            self.feed(name, tensor, edge)
            self.flow.made(tensor, edge, name)
            self.write(call, "output", index, tensor)
        order = self.capture.tick()
        for entry in call.entries:
            entry.order = order
        self.follow_gradients(call, outputs)

    def feed(self, op: str, tensor: Tensor, edge: Edge | None) -> None:
        """An operator's inputs come from others; so does the output of a container, from the last module in it."""
        feeders = self.edges.setdefault(op, {})
        feeders.update(dict.fromkeys(maker for maker in self.flow.makers(tensor, edge) if maker != op))

    def recorded(self, op: str, tensor: Tensor) -> None:
        """A tensor that was handed over by hand: who made it?"""
        edge = edge_of(tensor)
        self.feed(op, tensor, edge)
        self.flow.made(tensor, edge, op)

    def write(self, call: Call, role: Role, index: int, tensor: Tensor) -> None:
        if self.capture.plan.wants(call.op, role):
            call.entries.append(self.capture.add(Entry(call.op, call.type, role, index, 0, call.number), tensor))

    def follow_gradients(self, call: Call, outputs: list[tuple[Tensor, Edge | None]]) -> None:
        taken, given = dict.fromkeys(call.edges), dict.fromkeys(edge for _, edge in outputs)
        inputs, ends = [edge for edge in taken if edge is not None], [edge for edge in given if edge is not None]
        mixed = {*inputs, *used_within(ends, inputs)}
        for index, (tensor, edge) in enumerate(outputs):
            if edge is not None and self.telling(call, "grad_output", index, edge, mixed):
                mixed.add(edge)  # what is returned twice is told once
                self.on_gradient(tensor, edge, call, "grad_output", index)
        if inputs:
            self.on_exits(call, ends, inputs)

    def telling(self, call: Call, role: Role, index: int, edge: Edge, mixed: Container[Edge]) -> bool:
        """Whether a gradient is written down. Autograd has one gradient for a tensor, however many modules hand it on:
        what comes back on one of these ways cannot be told from what comes back on the others."""
        if edge in mixed:
            self.untold.add((call.op, role, index))
            return False
        return self.capture.plan.wants(call.op, role)

    def on_gradient(self, tensor: Tensor, edge: Edge, call: Call, role: Role, index: int) -> None:
        """The gradient of a tensor as a whole: what all that used it send back."""
        listeners = self._on_gradient.get(edge)
        if listeners is None:
            listeners = self._on_gradient[edge] = []
            hooked: Any = tensor
            self._handles.append(hooked.register_hook(partial(self.gradient, listeners)))
        listeners.append((call, role, index))

    def gradient(self, listeners: list[tuple[Call, Role, int]], gradient: Tensor) -> None:
        for call, role, index in listeners:
            self.write_gradient(call, role, index, gradient)

    def on_exits(self, call: Call, outputs: Collection[Edge], inputs: Collection[Edge]) -> None:
        """What one module sends back to its input, which others may have used too."""
        leaving, mixed = exits(outputs, inputs), set(outputs)
        for index, edge in enumerate(call.edges):
            if edge is None or not self.telling(call, "grad_input", index, edge, mixed):
                continue
            mixed.add(edge)  # what is taken twice is told once
            parts = Parts(len(leaving[edge]))
            for node, place in leaving[edge]:
                hook = partial(self.part, parts, call, index, place)
                self._handles.append(node.register_hook(hook))

    def part(
        self, parts: Parts, call: Call, index: int, place: int, gradients: Iterable[Tensor | None], _: Any
    ) -> None:
        gradient = tuple(gradients)[place]
        with self.capture.looking_away():
            total = parts.add(gradient)
        if total is not None:
            self.write_gradient(call, "grad_input", index, total)

    def write_gradient(self, call: Call, role: Role, index: int, gradient: Tensor) -> None:
        call.last_gradient = self.capture.tick()
        if (role, index) not in call.backward:  # a second pass through the same graph is not looked at
            entry = Entry(call.op, call.type, role, index, 0, call.number)
            call.backward[role, index] = self.capture.add(entry, gradient)


def version_of(tensor: Tensor) -> int:
    """How often it was written to; nobody counts that in inference mode."""
    return 0 if tensor.is_inference() else tensor._version


class Parts:
    """A gradient that leaves a module through several of autograd's nodes is their sum."""

    def __init__(self, expected: int) -> None:
        self.missing = expected
        self.total: Tensor | None = None

    def add(self, gradient: Tensor | None) -> Tensor | None:
        """The sum, when the last part is there."""
        self.missing -= 1
        if gradient is not None:
            self.total = gradient if self.total is None else self.total + gradient
        return self.total if self.missing == 0 else None


def names_in(root: nn.Module, prefix: str = "") -> dict[nn.Module, str]:
    """Every module under the name that it has without wrappers; the outermost is `network`."""
    root = peeled(root)
    names = {}
    for path, module in root.named_modules():
        if type(module).__name__ in PEELED:
            continue
        inner = plain_path(path)
        names[module] = f"{prefix}.{inner}" if prefix and inner else prefix or inner or ROOT
    return names


def peeled(module: nn.Module) -> nn.Module:
    """The network within data parallel and torch.compile."""
    while type(module).__name__ in PEELED:
        inner = getattr(module, "_orig_mod", None) or getattr(module, "module", None)
        if not isinstance(inner, nn.Module):
            break
        module = inner
    return module
