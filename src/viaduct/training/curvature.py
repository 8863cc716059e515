"""The two Kronecker factors of a layer's curvature, A of its inputs and G of its output gradients, in diagonal blocks.

A watch sees every convolution and matrix product that uses a watched weight, whatever module it stands in, with
the padding it really has. The covariances are summed as the tensors pass by: patches are made a few images at a
time and never kept. Only the diagonal blocks are computed: for 4608 columns in blocks of 128 that is a
thirty-sixth of the work. All is float32, and the host never waits.

Shapes: a factor of a layer is (groups, blocks, edge, edge); a grouped convolution is `groups` small layers.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

Form = Literal["ascend", "gpu"]
BUFFER = 2**26  # elements of patches at a time: 256 MiB
DEPTH = 2048  # a product as deep as this keeps a GPU busy; shallower ones take several images together


@dataclass(frozen=True)
class Cut:
    """One side of a weight, cut into equal blocks; the last is padded."""

    size: int
    edge: int

    @property
    def blocks(self) -> int:
        return math.ceil(self.size / self.edge)

    @property
    def padded_size(self) -> int:
        return self.blocks * self.edge


@dataclass(frozen=True)
class Layer:
    """A convolution's or dense layer's weight, as `groups` matrices of outputs by inputs."""

    name: str  # of the parameter
    weight: nn.Parameter
    groups: int
    outputs: Cut
    inputs: Cut


def find_layers(model: nn.Module, block: int) -> list[Layer]:
    """Return the trainable weights of all convolutions and dense layers, in module order, each once."""
    found: list[Layer] = []
    for name, module in model.named_modules():
        shared = any(layer.weight is getattr(module, "weight", None) for layer in found)
        if isinstance(module, nn.Conv2d | nn.Linear) and module.weight.requires_grad and not shared:
            groups = module.groups if isinstance(module, nn.Conv2d) else 1
            outputs, inputs = module.weight.shape[0] // groups, module.weight[0].numel()
            cuts = (Cut(size, min(block, size) or size) for size in (outputs, inputs))
            found.append(Layer(f"{name}.weight".lstrip("."), cast(nn.Parameter, module.weight), groups, *cuts))
    return found


@dataclass
class Factor:
    """A covariance, and its form's factors: of the damping on its diagonal, and of its inverse."""

    blocks: Tensor
    damping: float  # factor of the square root of the optimizer's damping
    inverse_scale: float

    def add_damping(self, damping: float) -> Tensor:
        """Return the blocks with the damping added to their diagonals."""
        eye = torch.eye(self.blocks.shape[-1], device=self.blocks.device)
        return self.blocks + math.sqrt(damping) * self.damping * eye


class Watch(TorchFunctionMode):
    """While it is entered, collects the factors of the layers whose weights are used; `scale` is the loss scale."""

    def __init__(self, layers: dict[int, Layer], form: Form, scale: float) -> None:
        super().__init__()
        self.layers, self.form, self.scale = layers, form, scale
        self.inputs: defaultdict[str, list[Factor]] = defaultdict(list)
        self.outputs: defaultdict[str, list[Factor]] = defaultdict(list)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is F.conv2d or func is F.linear:
            use = Use(*args, **(kwargs or {}))
            layer = self.layers.get(id(use.weight))
            if layer is not None and result.requires_grad:
                self.record_use(layer, use, result, convolution=func is F.conv2d)
        return result

    def record_use(self, layer: Layer, use: Use, output: Tensor, convolution: bool) -> None:
        """Record A now, and G when the gradient arrives."""
        factor = partial(convolution_factor, self.form) if convolution else dense_factor
        with torch.no_grad():
            self.inputs[layer.name].append(factor(use.patches() if convolution else use.input, layer.inputs, 1.0))

        @torch.no_grad()
        def record_gradient(gradient: Tensor) -> None:
            # The loss is a mean over the batch: times the batch, these are the gradients of single images.
            size = (len(gradient) / self.scale) ** 2
            matrices = as_patches(gradient, layer.groups) if convolution else gradient
            self.outputs[layer.name].append(factor(matrices, layer.outputs, size))

        output.register_hook(record_gradient)  # type: ignore[no-untyped-call]

    def factors(self) -> dict[str, tuple[Factor, Factor]]:
        """Return the collected factors; a weight that was used several times has the mean over its uses."""
        seen = [name for name in self.inputs if name in self.outputs]
        return {name: (mean(self.inputs[name]), mean(self.outputs[name])) for name in seen}


def mean(factors: list[Factor]) -> Factor:
    blocks = torch.stack([factor.blocks for factor in factors]).mean(0) if len(factors) > 1 else factors[0].blocks
    return Factor(blocks, factors[-1].damping, factors[-1].inverse_scale)


@dataclass
class Use:
    """The arguments of a convolution, or the first of a dense layer, by torch's names and defaults."""

    input: Tensor
    weight: Tensor
    bias: Tensor | None = None
    stride: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: int = 1

    def patches(self) -> Tensor:
        """Return a view of the padded input: image, group, channel, kernel row and column, output row and column."""
        kernel, stride, dilation = tuple(self.weight.shape[2:]), pair(self.stride), pair(self.dilation)
        x = self.input
        if any(self.margins(kernel, dilation)):
            x = F.pad(x, self.margins(kernel, dilation))
        x = by_group(x, self.groups)
        if kernel != (1, 1):
            x = x.contiguous()  # rows of pixels one after the other: patches are then read in order
        spans = [extent - step * (k - 1) - 1 for extent, step, k in zip(x.shape[3:], dilation, kernel, strict=True)]
        positions = [span // step + 1 for span, step in zip(spans, stride, strict=True)]
        *outer, down, right = x.stride()
        steps = (down * dilation[0], right * dilation[1], down * stride[0], right * stride[1])
        return x.as_strided((*x.shape[:3], *kernel, *positions), (*outer, *steps))

    def margins(self, kernel: tuple[int, ...], dilation: tuple[int, int]) -> tuple[int, ...]:
        """Return the padding left, right, above and below."""
        if self.padding == "valid":
            return (0, 0, 0, 0)
        if self.padding == "same":
            totals = [step * (k - 1) for step, k in zip(dilation, kernel, strict=True)]
            return (totals[1] // 2, totals[1] - totals[1] // 2, totals[0] // 2, totals[0] - totals[0] // 2)
        rows, columns = pair(self.padding)
        return (columns, columns, rows, rows)


def pair(value: int | Sequence[int]) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    return (value[0], value[-1])


def as_patches(gradient_NCHW: Tensor, groups: int) -> Tensor:
    """Return the gradient in the shape of patches of a 1x1 kernel."""
    return by_group(gradient_NCHW, groups)[:, :, :, None, None]


def by_group(x_NCHW: Tensor, groups: int) -> Tensor:
    matrices: Tensor = x_NCHW.unflatten(1, (groups, -1))  # type: ignore[no-untyped-call]
    return matrices


def convolution_factor(form: Form, patches: Tensor, cut: Cut, size: float) -> Factor:
    """Return X^T X over all images and output positions; form `gpu` averages over the batch first."""
    batch, positions = patches.shape[0], patches.shape[-2] * patches.shape[-1]
    damping, inverse_scale = math.sqrt(1 / positions), math.sqrt(1 / positions)
    if form == "gpu":
        patches = patches.mean(0, keepdim=True, dtype=torch.float32)
        batch = 1
    blocks = block_covariance(patches, cut).mul_(size / (batch * positions))
    return Factor(blocks, damping, inverse_scale)


def dense_factor(rows: Tensor, cut: Cut, size: float) -> Factor:
    rows = rows.reshape(-1, rows.shape[-1])
    # One image with an output position for every row.
    patches = rows.T[None, None, :, None, None, None, :]
    return Factor(block_covariance(patches, cut).mul_(size / len(rows)), 1.0, 1.0)


def block_covariance(patches: Tensor, cut: Cut) -> Tensor:
    """Return the diagonal blocks of the sum of x x^T over images and output positions, for each group."""
    groups = patches.shape[1]
    depth = patches.shape[-2] * patches.shape[-1]
    total = torch.zeros(groups, cut.blocks, cut.edge, cut.edge, device=patches.device)
    for some in torch.split(patches, max(1, BUFFER // (groups * cut.padded_size * depth))):
        together = divisor_up_to(len(some), max(1, DEPTH // depth))
        columns = as_columns(some.view(-1, together, *some.shape[1:]), cut)
        blocks = columns.view(-1, cut.edge, columns.shape[-1])
        products = torch.bmm(blocks, blocks.transpose(1, 2))
        total += products.view(-1, *total.shape).sum(0)
    return total


def divisor_up_to(number: int, limit: int) -> int:
    return max(divisor for divisor in range(1, min(number, limit) + 1) if number % divisor == 0)


def as_columns(patches: Tensor, cut: Cut) -> Tensor:
    """Return float32 columns (parts, groups, padded size, images * positions), ordered like the weight."""
    parts, images, groups, channels, *kernel, rows, columns = patches.shape
    make = torch.empty if cut.size == cut.padded_size else torch.zeros
    made = make((parts, groups, cut.padded_size, images * rows * columns), dtype=torch.float32, device=patches.device)
    target = made[:, :, : cut.size].view(parts, groups, channels, *kernel, images, rows, columns)
    target.copy_(patches.movedim(1, -3))
    return made


def invert(factors: Sequence[Tensor], old: Sequence[Tensor], scales: Sequence[float]) -> list[Tensor]:
    """Return the inverse of each block times its scale, by Cholesky.

    A block that is not positive definite, or whose inverse is not finite, keeps its inverse in `old`.
    """
    by_edge: defaultdict[int, list[int]] = defaultdict(list)
    for index, factor in enumerate(factors):
        by_edge[factor.shape[-1]].append(index)
    inverses: dict[int, Tensor] = {}
    for indices in by_edge.values():
        found, usable = cholesky_inverse(torch.cat([factors[index].flatten(0, -3) for index in indices]))
        sizes = [factors[index].shape[:-2].numel() for index in indices]
        split = zip(indices, torch.split(found, sizes), torch.split(usable, sizes), strict=True)
        for index, new, good in split:
            chosen = torch.where(good[:, None, None], new * scales[index], old[index].reshape(new.shape))
            inverses[index] = chosen.view_as(factors[index])
    return [inverses[index] for index in range(len(factors))]


def cholesky_inverse(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Return L^-T L^-1 of each block, and True for each that is finite and positive definite."""
    lower, failed = torch.linalg.cholesky_ex(blocks)
    eye = torch.eye(blocks.shape[-1], device=blocks.device).expand_as(blocks)
    root = torch.linalg.solve_triangular(lower, eye, upper=False)
    inverse = root.mT @ root
    return inverse, (failed == 0) & inverse.isfinite().flatten(1).all(1)


class Stack:
    """Layers of one shape and the inverses of their factors, worked on together; identities at first."""

    def __init__(self, layers: list[Layer]) -> None:
        self.layers, self.groups = layers, layers[0].groups
        self.outputs, self.inputs = layers[0].outputs, layers[0].inputs
        self.input_inverses, self.output_inverses = self.identities(self.inputs), self.identities(self.outputs)

    def identities(self, cut: Cut) -> Tensor:
        eye = torch.eye(cut.edge, device=self.layers[0].weight.device)
        return eye.repeat(len(self.layers) * self.groups, cut.blocks, 1, 1)

    def inverses(self) -> Iterator[tuple[Layer, tuple[Tensor, Tensor]]]:
        """Yield each layer with views of the inverses of its A and its G."""
        inputs, outputs = (
            torch.split(matrices, self.groups) for matrices in (self.input_inverses, self.output_inverses)
        )
        pairs = zip(inputs, outputs, strict=True)
        yield from zip(self.layers, pairs, strict=True)

    def precondition(self) -> None:
        """Turn each gradient g into G^-1 g A^-1, in place."""
        if all(layer.weight.grad is None for layer in self.layers):
            return
        # A layer without a gradient in this step has zeros in its place; its result is dropped.
        gradients = [torch.zeros_like(w) if w.grad is None else w.grad for w in (own.weight for own in self.layers)]
        results = self.product(torch.stack(gradients)).view(len(gradients), *gradients[0].shape)
        torch._foreach_copy_(gradients, results.unbind())

    def product(self, gradients: Tensor) -> Tensor:
        """Return G^-1 g A^-1 for matrices of outputs by inputs, block by block, without padding."""
        outputs, inputs = self.outputs, self.inputs
        matrices = gradients.reshape(-1, outputs.size, inputs.size)
        if matrices.shape[1:] != (outputs.padded_size, inputs.padded_size):
            matrices = F.pad(matrices, (0, inputs.padded_size - inputs.size, 0, outputs.padded_size - outputs.size))
        left = self.output_inverses @ matrices.view(-1, outputs.blocks, outputs.edge, inputs.padded_size)
        left = left.view(-1, outputs.padded_size, inputs.blocks, inputs.edge).transpose(1, 2)
        both = (left @ self.input_inverses).transpose(1, 2).reshape(-1, outputs.padded_size, inputs.padded_size)
        return both[:, : outputs.size, : inputs.size].contiguous()


def stack_layers(layers: Sequence[Layer]) -> list[Stack]:
    """Group the layers by shape."""
    alike: defaultdict[tuple[Any, ...], list[Layer]] = defaultdict(list)
    for layer in layers:
        alike[tuple(layer.weight.shape), layer.groups].append(layer)
    return [Stack(some) for some in alike.values()]
