"""Recorder of weights: their values before a step, their gradients at the optimizer's step, and their updates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from viaduct.comparison.capture import Capture
from viaduct.comparison.index import Entry
from viaduct.comparison.records import Role


@dataclass(frozen=True)
class ParameterKey:
    """Name and type of the module that owns a parameter or buffer, and its name and index within the module."""

    op: str
    type: str
    name: str
    index: int

    def make_entry(self, role: Role, order: int) -> Entry:
        return Entry(self.op, self.type, role, self.index, order, parameter=self.name)


class ParameterRecorder:
    """Recorder of parameters, buffers, gradients and updates of one step. Its dictionaries are by id of the tensor."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self._keys: dict[int, tuple[Tensor, ParameterKey]] = {}  # holds the tensor, so that its id is not reused
        self._before: dict[int, Tensor] = {}  # copies of the trainable weights
        self._done: set[tuple[str, int]] = set()  # role and id: each is recorded once a step

    def watch(self, names: dict[nn.Module, str], parameters: bool = True, buffers: bool = True) -> None:
        """Record the parameters and buffers of some modules that the plan selects, and copy the trainable ones."""
        for module, op in names.items():
            order = self.capture.next_order()
            for tensor, parameter_key in iterate_own_tensors(module, op, parameters, buffers):
                if id(tensor) in self._keys:
                    continue  # shared between modules
                self._keys[id(tensor)] = (tensor, parameter_key)
                if self.capture.plan.selects(op, "parameter"):
                    self.capture.add(parameter_key.make_entry("parameter", order), tensor)
                    if tensor.requires_grad:
                        with self.capture.suspend_watching():
                            self._before[id(tensor)] = tensor.detach().clone()

    def record(self, optimizer: torch.optim.Optimizer, role: Role) -> None:
        """Record the gradient or the update (new minus old value) of an optimizer's watched weights, once a step."""
        order = self.capture.next_order()
        for parameter in iterate_parameters(optimizer):
            identity = id(parameter)
            if identity not in self._before or (role, identity) in self._done:
                continue
            self._done.add((role, identity))
            entry = self._keys[identity][1].make_entry(role, order)
            if role == "update":
                with self.capture.suspend_watching():
                    change = parameter.detach() - self._before[identity]
                self.capture.add(entry, change, owned=True)
            elif parameter.grad is not None:
                self.capture.add(entry, parameter.grad)


def iterate_parameters(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def iterate_own_tensors(
    module: nn.Module, op: str, parameters: bool = True, buffers: bool = True
) -> Iterator[tuple[Tensor, ParameterKey]]:
    """Yield a module's own parameters, then its buffers, numbered together."""
    named: list[tuple[bool, str, Tensor]] = [(parameters, *item) for item in module.named_parameters(recurse=False)]
    named += [(buffers, *item) for item in module.named_buffers(recurse=False)]
    for index, (is_selected, name, tensor) in enumerate(named):
        if is_selected:
            yield tensor, ParameterKey(op, type(module).__name__, name, index)
