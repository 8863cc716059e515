"""Layers of a bottleneck block of any library: three convolutions with their norms, and a shortcut.

    parts = read_parts(block)      # BottleneckParts; a sentence if our kernels do not support them; None for others

Blocks are recognised by the names and types of their layers: ours, and those of torchvision's and timm's ResNet
(including grouped and wide) and RegNet. self_check.py checks the computation. This module does not import Triton.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from viaduct.models.padding import SameConv2d

Layer = tuple[nn.Conv2d, nn.BatchNorm2d]
CHANNEL_MULTIPLE = 16  # required of output channels by the matrix products and the packed sign bits


@dataclass(frozen=True, eq=False)
class BottleneckParts:
    """Layers of relu(norm3(conv3(relu(norm2(conv2(relu(norm1(conv1(x)))))))) + shortcut(x))."""

    conv1: nn.Conv2d
    norm1: nn.BatchNorm2d
    conv2: nn.Conv2d
    norm2: nn.BatchNorm2d
    conv3: nn.Conv2d
    norm3: nn.BatchNorm2d
    projection: Layer | None  # None: the shortcut is the input itself

    @property
    def layers(self) -> list[Layer]:
        """Convolutions with their norms, the projection last."""
        main = [(self.conv1, self.norm1), (self.conv2, self.norm2), (self.conv3, self.norm3)]
        return main if self.projection is None else [*main, self.projection]

    @property
    def convolutions(self) -> list[nn.Conv2d]:
        return [conv for conv, _ in self.layers]

    @property
    def parameters(self) -> list[Tensor]:
        """Weight of the convolution, weight and bias of the norm, for each layer."""
        return [tensor for conv, norm in self.layers for tensor in (conv.weight, norm.weight, norm.bias)]


@dataclass(frozen=True)
class LayerNames:
    """Names that a library gives to the layers of its blocks."""

    layers: tuple[tuple[str, str], ...]  # convolution and norm
    shortcut: str


def fill_in_numbers(conv: str, norm: str) -> tuple[tuple[str, str], ...]:
    """Return the names of three layers: ("conv1", "bn1") … for "conv{}" and "bn{}"."""
    return tuple((conv.format(number), norm.format(number)) for number in (1, 2, 3))


KNOWN_NAMES = (
    LayerNames(fill_in_numbers("conv{}", "norm{}"), "shortcut"),  # ours
    LayerNames(fill_in_numbers("conv{}", "bn{}"), "downsample"),  # ResNets of torchvision and timm
    LayerNames(fill_in_numbers("conv{}.conv", "conv{}.bn"), "downsample"),  # timm's RegNet
    LayerNames((("f.a.0", "f.a.1"), ("f.b.0", "f.b.1"), ("f.c.0", "f.c.1")), "proj"),  # torchvision's RegNet
)


def read_parts(block: nn.Module) -> BottleneckParts | str | None:
    """Return a block's parts, or the reason why our kernels do not support it; None for other modules."""
    children = dict(block.named_modules())
    known = next((known for known in KNOWN_NAMES if has_layers(block, children, known)), None)
    if known is None:
        return None
    names = list(known.layers)
    if any(name not in children for name in names[2]):
        return "it has two convolutions with norms, and our kernels are for bottlenecks of three"
    shortcut = children.get(known.shortcut)
    if shortcut is not None and not is_identity(shortcut):
        projection = find_projection(children, known.shortcut)
        if isinstance(projection, str):
            return projection
        names.append(projection)
    return next(list_obstacles(block, children, names), None) or build_parts(children, names)


def has_layers(block: nn.Module, children: dict[str, nn.Module], known: LayerNames) -> bool:
    """Return True if a module has a shortcut and the first two layers of a block."""
    first = [name for layer in known.layers[:2] for name in layer]
    return hasattr(block, known.shortcut) and all(name in children for name in first)


def is_identity(module: nn.Module) -> bool:
    """Return True for Identity, and for containers without any other modules."""
    if isinstance(module, nn.Sequential):
        return all(is_identity(child) for child in module)
    return type(module) is nn.Identity


def find_projection(children: dict[str, nn.Module], shortcut: str) -> tuple[str, str] | str:
    """Return the names of a shortcut's convolution and norm; a sentence unless it has exactly one of each."""
    inside = {name: module for name, module in children.items() if name.startswith(f"{shortcut}.")}
    convs = [name for name, module in inside.items() if isinstance(module, nn.Conv2d)]
    norms = [name for name, module in inside.items() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    if len(convs) != 1 or len(norms) != 1:
        return f"{shortcut} is not one convolution with its batch norm"
    return convs[0], norms[0]


def build_parts(children: dict[str, nn.Module], names: list[tuple[str, str]]) -> BottleneckParts:
    layers: list[Layer] = [(children[conv], children[norm]) for conv, norm in names]  # type: ignore[misc]
    (conv1, norm1), (conv2, norm2), (conv3, norm3), *projection = layers
    return BottleneckParts(conv1, norm1, conv2, norm2, conv3, norm3, projection[0] if projection else None)


def list_obstacles(block: nn.Module, children: dict[str, nn.Module], names: list[tuple[str, str]]) -> Iterator[str]:
    """Yield the reasons why our kernels do not support these layers."""
    yield from list_other_operations(children, [name for layer in names for name in layer])
    for number, (conv_name, norm_name) in enumerate(names):
        conv, norm = children[conv_name], children[norm_name]
        if not isinstance(conv, nn.Conv2d) or type(conv) not in (nn.Conv2d, SameConv2d):
            yield f"{conv_name} is of type {type(conv).__name__}"
            return
        if not isinstance(norm, nn.BatchNorm2d) or not is_plain_norm(norm):
            yield f"{norm_name} is of type {type(norm).__name__}"
            return
        yield from list_convolution_obstacles(conv_name, conv, number)
        yield from list_norm_obstacles(norm_name, norm, block.training)


def list_other_operations(children: dict[str, nn.Module], layer_names: list[str]) -> Iterator[str]:
    """Yield what else a block has: other submodules than ReLUs and identities, tensors, hooks, replaced forwards.

    `children` are the named modules of the block, which include itself under an empty name; its own hooks still run.
    """
    layers = {children[name] for name in layer_names}
    inside_layers = {part for layer in layers for part in layer.modules()}
    for name, module in children.items():
        if name and (module._forward_hooks or module._forward_pre_hooks or module._backward_hooks):
            yield f"{name} has hooks, which our kernels would skip"
        if "forward" in vars(module):
            yield f"the forward pass of {name or 'the block'} was replaced"
        if module in inside_layers:
            continue
        if any(part in layers for part in module.modules()):  # the block, or a container of layers
            yield from (f"{tensor} is a tensor besides those of its layers" for tensor in list_tensors(module))
        elif not is_identity(module) and type(module) is not nn.ReLU:
            yield f"{name} is of type {type(module).__name__}"


def list_tensors(module: nn.Module) -> list[str]:
    """Return the names of parameters and buffers that belong to the module itself."""
    tensors = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
    return [name for name, _ in tensors]


def is_plain_norm(norm: nn.BatchNorm2d) -> bool:
    """Return True for torch's own batch norm, and for timm's with an activation that is a ReLU or nothing."""
    if type(norm) is nn.BatchNorm2d:
        return True
    inside = dict(norm.named_children())
    is_known = all(is_identity(child) or type(child) is nn.ReLU for child in inside.values())
    return set(inside) == {"drop", "act"} and is_known


def list_convolution_obstacles(name: str, conv: nn.Conv2d, number: int) -> Iterator[str]:
    """Yield the reasons against a convolution: number 0 to 2 of the main path, or 3, the shortcut's."""
    if conv.bias is not None:
        yield f"{name} has a bias"
    if conv.dilation != (1, 1):
        yield f"{name} is dilated"
    if conv.padding_mode != "zeros" or isinstance(conv.padding, str):
        yield f"{name} pads in a way of its own ({conv.padding_mode}, {conv.padding!r})"
    if number in (0, 2) and conv.stride != (1, 1):
        yield f"{name} has a stride"
    if number == 1 and conv.kernel_size != (3, 3):
        yield f"{name} is not 3x3"
    if number != 1 and (conv.kernel_size != (1, 1) or conv.groups != 1 or any(map(int, conv.padding))):
        yield f"{name} is not a plain 1x1 convolution"
    if conv.out_channels % CHANNEL_MULTIPLE:
        yield f"{name} has {conv.out_channels} channels, no multiple of {CHANNEL_MULTIPLE}"


def list_norm_obstacles(name: str, norm: nn.BatchNorm2d, training: bool) -> Iterator[str]:
    if not norm.affine:
        yield f"{name} has no weights"
    if norm.momentum is None:
        yield f"{name} averages over all batches (momentum=None)"
    if training and not norm.training:
        yield f"{name} is frozen: it is in evaluation mode"
