"""Weights before a step, their gradients as the optimizer sees them, and what the update made of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from viaduct.comparison.capture import Capture
from viaduct.comparison.index import Entry
from viaduct.comparison.tensors import Role


@dataclass(frozen=True)
class Place:
    """Where a parameter or buffer belongs."""

    op: str
    type: str
    name: str
    index: int

    def entry(self, role: Role, order: int) -> Entry:
        return Entry(self.op, self.type, role, self.index, order, parameter=self.name)


class ParameterWatch:
    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self._places: dict[int, tuple[Tensor, Place]] = {}
        self._before: dict[int, Tensor] = {}
        self._done: set[tuple[str, int]] = set()

    def watch(self, names: dict[nn.Module, str], parameters: bool = True, buffers: bool = True) -> None:
        """Write down all weights as they are now; of those that learn a copy stays for the update."""
        for module, op in names.items():
            order = self.capture.tick()
            for tensor, place in own_tensors(module, op, parameters, buffers):
                if id(tensor) in self._places:
                    continue  # shared between modules
                self._places[id(tensor)] = (tensor, place)
                if self.capture.plan.wants(op, "parameter"):
                    self.capture.add(place.entry("parameter", order), tensor)
                    if tensor.requires_grad:
                        with self.capture.looking_away():
                            self._before[id(tensor)] = tensor.detach().clone()

    def gradients(self, optimizer: torch.optim.Optimizer) -> None:
        self._each(optimizer, "gradient")

    def updates(self, optimizer: torch.optim.Optimizer) -> None:
        self._each(optimizer, "update")

    def _each(self, optimizer: torch.optim.Optimizer, role: Role) -> None:
        order = self.capture.tick()
        for parameter in learned(optimizer):
            key = id(parameter)
            if key not in self._before or (role, key) in self._done:
                continue
            self._done.add((role, key))
            place = self._places[key][1]
            if role == "update":
                with self.capture.looking_away():
                    change = parameter.detach() - self._before[key]
                self.capture.add(place.entry(role, order), change, owned=True)
            elif parameter.grad is not None:
                self.capture.add(place.entry(role, order), parameter.grad)

    def concerns(self, optimizer: torch.optim.Optimizer) -> bool:
        return any(id(parameter) in self._places for parameter in learned(optimizer))


def learned(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def own_tensors(
    module: nn.Module, op: str, parameters: bool = True, buffers: bool = True
) -> Iterator[tuple[Tensor, Place]]:
    """A module's own parameters, then its buffers; they are numbered together."""
    found: list[tuple[bool, str, Tensor]] = [(parameters, *named) for named in module.named_parameters(recurse=False)]
    found += [(buffers, *named) for named in module.named_buffers(recurse=False)]
    for index, (wanted, name, tensor) in enumerate(found):
        if wanted:
            yield tensor, Place(op, type(module).__name__, name, index)
