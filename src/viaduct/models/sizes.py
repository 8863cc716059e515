"""Sizes of a network: parameters, multiply-accumulate operations (MACs) and shapes, by blocks or by layers.

Everything is computed on PyTorch's meta device, which has shapes but no values. As in the papers, MACs are those of
convolutions and dense layers on one image, in evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from viaduct import models


@dataclass
class Part:
    """Block or layer of a network."""

    name: str
    kind: str  # name of its class
    parameters: int
    output: tuple[int, ...] | None = None  # shape without the batch; None for a part that only training uses
    macs: int = 0


@dataclass
class Sizes:
    """Parts of a network, in the order of its modules."""

    name: str
    family: str  # name of the family's file
    classes: int
    input_size: int
    parts: list[Part] = field(default_factory=list)

    @property
    def parameters(self) -> int:
        return sum(part.parameters for part in self.parts)

    @property
    def macs(self) -> int:
        return sum(part.macs for part in self.parts)


class WithoutNorms(TorchFunctionMode):
    """Mode that skips batch norm, which changes no shape; this halves the time for listing all networks."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, inputs: Any = (), keywords: dict[str, Any] | None = None
    ) -> Any:
        return inputs[0] if function is F.batch_norm else function(*inputs, **(keywords or {}))


def measure(name: str, classes: int | None = None, layers: bool = False) -> Sizes:
    """Return the sizes of a network at its usual input size: of its blocks or, with `layers`, of its layers."""
    family = models.find_family(name)
    sizes = Sizes(name, models.find_family_name(name), classes or family.classes, family.input_size)
    with torch.device("meta"), torch.no_grad():
        network = models.build(name, sizes.classes).eval()
        modules = list_layers(network) if layers else list_blocks(network)
        sizes.parts = [observe_part(path, module) for path, module in modules]
        with WithoutNorms():
            network(torch.empty(1, 3, sizes.input_size, sizes.input_size))
    return sizes


def list_layers(network: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield every module that has parameters of its own."""
    for path, layer in network.named_modules():
        if any(True for _ in layer.parameters(recurse=False)):
            yield path, layer


def list_blocks(network: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield the children of the network that have parameters; containers are replaced by their children."""
    for name, module in network.named_children():
        if isinstance(module, (nn.Sequential, nn.ModuleDict, nn.ModuleList)):
            yield from list_blocks(module, f"{path}{name}.")
        elif any(True for _ in module.parameters()):
            yield path + name, module


def observe_part(path: str, module: nn.Module) -> Part:
    """Return a part whose output and macs forward hooks fill in when the network runs."""
    part = Part(path, type(module).__name__, sum(parameter.numel() for parameter in module.parameters()))

    def note_output(layer: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        part.output = tuple(output.shape[1:])

    def add_macs(layer: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        assert isinstance(layer, (nn.Conv2d, nn.Linear))
        part.macs += layer.weight[0].numel() * output.numel()

    module.register_forward_hook(note_output)
    for layer in module.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            layer.register_forward_hook(add_macs)
    return part
