"""Links between a network's tensors and the variables of a TensorFlow checkpoint, and conversion of their values.

    kernel of           TensorFlow                         PyTorch
    a convolution       height, width, inputs, outputs     outputs, inputs, height, width
    a dense layer       inputs, outputs                    outputs, inputs

A grouped kernel may be stored as one variable per group; these are joined on the output axis, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

Kind = Literal["conv", "dense", "plain"]  # kernel of a convolution, of a dense layer, or a tensor with the same axes


@dataclass(frozen=True)
class Link:
    """A parameter or buffer of a network, and the TensorFlow variables that hold its values."""

    tensor: str  # name in the network's state_dict
    variables: tuple[str, ...]  # their names; several for a grouped kernel that is stored as one variable per group
    kind: Kind = "plain"
    trained: bool = True  # False for the running statistics of batch norms

    def compute_variable_shape(self, shape: torch.Size | tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of each variable, from the shape of the network's tensor."""
        joined = reorder_axes(tuple(shape), self.kind)
        return (*joined[:-1], joined[-1] // len(self.variables)) if len(self.variables) > 1 else joined

    def to_torch(self, values: list[Tensor]) -> Tensor:
        """Join and transpose TensorFlow's tensors into torch's."""
        joined = torch.cat(values, dim=-1) if len(values) > 1 else values[0]
        return joined.permute(reorder_axes(tuple(range(joined.ndim)), self.kind, to_torch=True)).contiguous()

    def to_tf(self, value: Tensor) -> list[Tensor]:
        """Transpose and split torch's tensor into TensorFlow's."""
        joined = value.permute(reorder_axes(tuple(range(value.ndim)), self.kind))
        return [part.contiguous() for part in joined.chunk(len(self.variables), dim=-1)]


def reorder_axes(axes: tuple[int, ...], kind: Kind, to_torch: bool = False) -> tuple[int, ...]:
    """Return PyTorch's axes in TensorFlow's order, or with `to_torch` TensorFlow's axes in PyTorch's order."""
    if kind == "conv":
        return (axes[3], axes[2], axes[0], axes[1]) if to_torch else (axes[2], axes[3], axes[1], axes[0])
    return (axes[1], axes[0]) if kind == "dense" else axes


def link_conv(module: str, *variables: str) -> Link:
    """Link the kernel of a convolution to one variable, or to one for each group."""
    return Link(f"{module}.weight", variables, "conv")


def link_norm(module: str, scope: str) -> list[Link]:
    """Link the weight, the bias and the two running statistics of a batch norm."""
    return [
        Link(f"{module}.weight", (f"{scope}/gamma",)),
        Link(f"{module}.bias", (f"{scope}/beta",)),
        Link(f"{module}.running_mean", (f"{scope}/moving_mean",), trained=False),
        Link(f"{module}.running_var", (f"{scope}/moving_variance",), trained=False),
    ]


def link_dense(module: str, scope: str, kernel: str = "kernel", bias: str = "bias") -> list[Link]:
    """Link the kernel and the bias of a dense layer."""
    return [Link(f"{module}.weight", (f"{scope}/{kernel}",), "dense"), Link(f"{module}.bias", (f"{scope}/{bias}",))]


def number_layer(name: str, number: int) -> str:
    """Return a layer's name as TensorFlow numbers it: conv2d, conv2d_1, conv2d_2 …"""
    return f"{name}_{number}" if number else name


def link_numbered_layers(
    model: nn.Module, conv: str, norm: str, name_grouped: Callable[[str], str] | None = None
) -> list[Link]:
    """Link all convolutions and norms to variables that are numbered in the order of our modules.

    `conv` and `norm` are the variables' names without numbers. A grouped convolution has a numbered variable for each
    group or, with `name_grouped`, a single one with the name that it returns for the module's name.
    """
    links: list[Link] = []
    convs = norms = 0
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv2d) and module.groups > 1 and name_grouped is not None:
            links.append(link_conv(name, name_grouped(name)))
        elif isinstance(module, nn.Conv2d):
            numbers = range(convs, convs + module.groups)
            links.append(link_conv(name, *(f"{number_layer(conv, number)}/kernel" for number in numbers)))
            convs += module.groups
        elif isinstance(module, nn.BatchNorm2d):
            links += link_norm(name, number_layer(norm, norms))
            norms += 1
    return links
