"""Recorder of inputs, outputs and gradients of a network's modules during one step.

Gradients are recorded by hooks on tensors and on autograd's nodes. Module.register_full_backward_hook is not used: it
wraps inputs and outputs, which forbids modules that work in place and changes autograd's graph. An edge is a node of
autograd's graph and the number of one of its outputs: it stands for a tensor (autograd_flow.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from viaduct.comparison.autograd_flow import Edge, TensorProducers, find_edge, find_exits, find_used_within
from viaduct.comparison.capture import Capture, find_tensors
from viaduct.comparison.index import Entry
from viaduct.comparison.naming import ROOT_MODULE, remove_wrappers
from viaduct.comparison.records import Role

# Classes of modules that get no name and no hooks; all but ScriptModule have the network as `module` or `_orig_mod`.
WRAPPER_CLASSES = (
    "DistributedDataParallel",
    "DataParallel",
    "OptimizedModule",
    "FullyShardedDataParallel",
    "ScriptModule",
)


@dataclass
class ModuleCall:
    """One call of one module."""

    module: nn.Module
    op: str
    type: str
    number: int  # among the calls of this module in the step, from 0
    edges: list[Edge | None] = field(default_factory=list)  # of the inputs, before the call; None: needs no gradient
    versions: list[int] = field(default_factory=list)  # of the inputs, before the call (`read_version`)
    entries: list[Entry] = field(default_factory=list)
    backward: dict[tuple[Role, int], Entry] = field(default_factory=dict)  # its gradients, by role and index
    last_gradient: int = 0  # order of its last gradient


class HookRecorder:
    """Base of recorders with forward hooks on modules, which call `on_enter` and `on_exit`."""

    def __init__(self, capture: Capture, evaluations: bool) -> None:
        self.capture = capture
        self.evaluations = evaluations  # True: passes without gradients belong to the step
        self.edges: dict[str, dict[str, None]] = {}  # operator -> ordered set of the operators whose outputs it reads
        self.paused = False  # True while the optimizer steps, which is not recorded
        self._count: Counter[str] = Counter()  # calls so far, by name
        self._handles: list[Any] = []

    def watch(self, names: dict[nn.Module, str]) -> None:
        """Register forward hooks on the modules."""
        for module, name in names.items():
            before, after = partial(self.on_enter, name), partial(self.on_exit, name)
            self._handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
            self._handles.append(module.register_forward_hook(after, with_kwargs=True))

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def on_enter(self, name: str, module: nn.Module, args: Any, kwargs: Any = None) -> None:
        """Handle the beginning of a module's call.

        `kwargs` is None if the caller, not a hook, reports the call without its keyword arguments.
        """
        raise NotImplementedError

    def on_exit(self, name: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """Handle the end of a module's call."""
        raise NotImplementedError


class ModuleRecorder(HookRecorder):
    """Records inputs, outputs and gradients of every module of one or several networks."""

    def __init__(self, capture: Capture, evaluations: bool = True) -> None:
        super().__init__(capture, evaluations)
        self.producers = TensorProducers()
        self.overwritten: set[tuple[str, int]] = set()  # inputs that a module writes to: its name, index of the input
        # Gradients that are not recorded, since autograd does not separate them: operator, role, index.
        self.ambiguous_gradients: set[tuple[str, Role, int]] = set()
        self.stack: list[ModuleCall | None] = []  # the running modules; None: outside of the step
        self.calls: list[ModuleCall] = []
        # By tensor with a gradient hook: the calls to record its gradient for.
        self._gradient_listeners: dict[Edge, list[tuple[ModuleCall, Role, int]]] = {}

    def close(self) -> None:
        """Remove all hooks; give all gradients of a call the position of the last one."""
        super().close()
        for call in self.calls:
            for entry in call.backward.values():
                entry.order = call.last_gradient

    def on_enter(self, name: str, module: nn.Module, args: Any, kwargs: Any = None) -> None:
        """Record a call's inputs."""
        if self.is_outside_step():
            self.stack.append(None)
            return
        call = ModuleCall(module, name, type(module).__name__, self._count[name])
        self._count[name] += 1
        self.stack.append(call)
        self.calls.append(call)
        for index, tensor in enumerate(find_tensors([args, kwargs])):
            edge = find_edge(tensor)
            call.edges.append(edge)
            call.versions.append(read_version(tensor))
            self.add_producers(name, tensor, edge)
            self.record(call, "input", index, tensor)

    def is_outside_step(self) -> bool:
        """Return True if this call is not part of the step: an evaluation, a recomputation, or a call inside one."""
        if self.stack:
            return self.stack[-1] is None
        # In a backward pass, activation checkpointing computes the module a second time.
        is_recomputation = torch._C._current_graph_task_id() != -1
        return self.paused or is_recomputation or not (self.evaluations or torch.is_grad_enabled())

    def on_exit(self, name: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """Record a call's outputs, and register hooks for its gradients."""
        call = self.stack.pop() if self.stack else None
        while call is not None and call.module is not module and self.stack:
            call = self.stack.pop()  # an inner module raised an exception that the script caught
        if call is None or call.module is not module:
            return
        inputs = find_tensors([args, kwargs])
        for index, tensor in enumerate(inputs[len(call.edges) :], len(call.edges)):
            self.record(call, "input", index, tensor)  # keyword arguments, if `on_enter` did not get them
        versions = zip(inputs, call.versions, strict=False)
        changed = (index for index, (tensor, version) in enumerate(versions) if read_version(tensor) != version)
        self.overwritten.update((name, index) for index in changed)
        outputs = [(tensor, find_edge(tensor)) for tensor in find_tensors(output)]
        for index, (tensor, edge) in enumerate(outputs):
            self.add_producers(name, tensor, edge)
            self.producers.add_producer(tensor, edge, name)
            self.record(call, "output", index, tensor)
        order = self.capture.next_order()
        for entry in call.entries:
            entry.order = order
        self.follow_gradients(call, outputs)

    def add_producers(self, op: str, tensor: Tensor, edge: Edge | None) -> None:
        """Record that an operator reads from the modules that produced a tensor."""
        producers = [producer for producer in self.producers.find_producers(tensor, edge) if producer != op]
        self.edges.setdefault(op, {}).update(dict.fromkeys(producers))

    def add_recorded(self, op: str, tensor: Tensor) -> None:
        """Add the edges of a tensor that the caller recorded under the name `op`."""
        edge = find_edge(tensor)
        self.add_producers(op, tensor, edge)
        self.producers.add_producer(tensor, edge, op)

    def record(self, call: ModuleCall, role: Role, index: int, tensor: Tensor) -> None:
        """Record one tensor of a call if the plan selects it."""
        if self.capture.plan.selects(call.op, role):
            entry = Entry(call.op, call.type, role, index, order=0, call=call.number)  # `on_exit` sets the order
            call.entries.append(self.capture.add(entry, tensor))

    def follow_gradients(self, call: ModuleCall, outputs: list[tuple[Tensor, Edge | None]]) -> None:
        """Register hooks for the gradients of a call's inputs and outputs."""
        inputs = [edge for edge in dict.fromkeys(call.edges) if edge is not None]
        ends = [edge for edge in dict.fromkeys(edge for _, edge in outputs) if edge is not None]
        mixed = {*inputs, *find_used_within(ends, inputs)}  # edges with one gradient for several uses of the tensor
        for index, (tensor, edge) in enumerate(outputs):
            if edge is not None and self.can_record_gradient(call, "grad_output", index, edge, mixed):
                mixed.add(edge)  # a tensor that is returned twice is recorded once
                self.hook_gradient(tensor, edge, call, "grad_output", index)
        if inputs:
            self.hook_leaving_gradients(call, ends, inputs)

    def can_record_gradient(self, call: ModuleCall, role: Role, index: int, edge: Edge, mixed: Container[Edge]) -> bool:
        """Return True if a gradient is unambiguous and selected by the plan. `mixed`: tensors used more than once.

        Autograd has one gradient for each tensor: the sum over its uses.
        """
        if edge in mixed:
            self.ambiguous_gradients.add((call.op, role, index))
            return False
        return self.capture.plan.selects(call.op, role)

    def hook_gradient(self, tensor: Tensor, edge: Edge, call: ModuleCall, role: Role, index: int) -> None:
        """Register a hook for the complete gradient of a tensor."""
        listeners = self._gradient_listeners.get(edge)
        if listeners is None:
            listeners = self._gradient_listeners[edge] = []
            hooked: Any = tensor
            self._handles.append(hooked.register_hook(partial(self.notify_listeners, listeners)))
        listeners.append((call, role, index))

    def notify_listeners(self, listeners: list[tuple[ModuleCall, Role, int]], gradient: Tensor) -> None:
        """Tensor hook: record a gradient for each call that `hook_gradient` added."""
        for call, role, index in listeners:
            self.record_gradient(call, role, index, gradient)

    def hook_leaving_gradients(self, call: ModuleCall, outputs: Collection[Edge], inputs: Collection[Edge]) -> None:
        """Register hooks for the gradients of a module's inputs, without the shares of other readers of them."""
        leaving, mixed = find_exits(outputs, inputs), set(outputs)
        for index, edge in enumerate(call.edges):
            if edge is None or not self.can_record_gradient(call, "grad_input", index, edge, mixed):
                continue
            mixed.add(edge)  # a tensor that is passed twice is recorded once
            parts = GradientSum(len(leaving[edge]))
            for node, output_index in leaving[edge]:
                hook = partial(self.add_gradient_part, parts, call, index, output_index)
                self._handles.append(node.register_hook(hook))

    def add_gradient_part(
        self, parts: GradientSum, call: ModuleCall, index: int, output_index: int, gradients: Any, _: Any
    ) -> None:
        """Hook of a node: add its part of an input gradient; record the sum once it is complete."""
        gradient = tuple(gradients)[output_index]
        with self.capture.suspend_watching():
            total = parts.add(gradient)
        if total is not None:
            self.record_gradient(call, "grad_input", index, total)

    def record_gradient(self, call: ModuleCall, role: Role, index: int, gradient: Tensor) -> None:
        """Record a gradient, but not again in a second backward pass through the same graph."""
        call.last_gradient = self.capture.next_order()
        if (role, index) not in call.backward:
            entry = Entry(call.op, call.type, role, index, order=0, call=call.number)  # `close` sets the order
            call.backward[role, index] = self.capture.add(entry, gradient)


def read_version(tensor: Tensor) -> int:
    """Return the number of writes to a tensor; 0 in inference mode, which does not count them."""
    return 0 if tensor.is_inference() else tensor._version


class GradientSum:
    """The sum of an input's gradient, which may leave a module through several of autograd's nodes."""

    def __init__(self, parts: int) -> None:
        self.missing = parts
        self.total: Tensor | None = None

    def add(self, gradient: Tensor | None) -> Tensor | None:
        """Add a part. Return the sum after the last one; it is None if no part is a tensor."""
        self.missing -= 1
        if gradient is not None:
            self.total = gradient if self.total is None else self.total + gradient
        return self.total if self.missing == 0 else None


def name_modules(root: nn.Module, prefix: str = "") -> dict[nn.Module, str]:
    """Return the name of every module, without wrappers; the outermost is called by the prefix, or else `network`."""
    root = unwrap_module(root)
    names = {}
    for path, module in root.named_modules():
        if type(module).__name__ in WRAPPER_CLASSES:
            continue
        inner = remove_wrappers(path)
        names[module] = f"{prefix}.{inner}" if prefix and inner else prefix or inner or ROOT_MODULE
    return names


def unwrap_module(module: nn.Module) -> nn.Module:
    """Return the network inside the wrappers of data parallelism and torch.compile; a ScriptModule as it is."""
    while type(module).__name__ in WRAPPER_CLASSES:
        inner = getattr(module, "_orig_mod", None) or getattr(module, "module", None)
        if not isinstance(inner, nn.Module):
            break
        module = inner
    return module
