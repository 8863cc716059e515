"""The two Kronecker factors of a layer's curvature, A of its inputs and G of its output gradients, in diagonal blocks.

A `FactorRecorder` observes each call of conv2d and linear with the weight of one of its layers, in any module. A patch
is the part of a convolution's input that one output position reads. Covariances are summed during the forward and the
backward pass; patches are made for a few images at a time and not kept. Only diagonal blocks are computed: for 4608
columns in blocks of 128 that is a thirty-sixth of the work. Factors and inverses are float32, and the host never waits
for the device.

A factor has the shape (groups, blocks, block size, block size); a grouped convolution counts as `groups` small layers.
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

# Form of THOR; in form gpu a convolution's patches and gradients are averaged over the batch first.
Form = Literal["ascend", "gpu"]
MAX_PATCH_ELEMENTS = 2**26  # numbers in the patches that are made at a time: 256 MiB of float32
# Positions that a matrix product should sum over to keep a GPU busy. If one image has fewer, the patches of several
# images are joined.
FULL_DEPTH = 2048


@dataclass(frozen=True)
class Blocking:
    """Division of one dimension of a weight matrix into equal blocks; the last one is padded."""

    size: int
    block_size: int

    @property
    def block_count(self) -> int:
        return math.ceil(self.size / self.block_size)

    @property
    def padded_size(self) -> int:
        return self.block_count * self.block_size


@dataclass(frozen=True)
class Layer:
    """A convolution's or dense layer's weight, as `groups` matrices of outputs by inputs."""

    name: str  # of the parameter
    weight: nn.Parameter
    groups: int
    outputs: Blocking
    inputs: Blocking


def find_layers(model: nn.Module, block_size: int) -> list[Layer]:
    """Return the trainable weights of all convolutions and dense layers, in module order, each once.

    With `block_size` 0 each factor is a single block.
    """
    layers: list[Layer] = []
    for name, module in model.named_modules():
        is_shared = any(layer.weight is getattr(module, "weight", None) for layer in layers)
        if isinstance(module, nn.Conv2d | nn.Linear) and module.weight.requires_grad and not is_shared:
            groups = module.groups if isinstance(module, nn.Conv2d) else 1
            outputs, inputs = module.weight.shape[0] // groups, module.weight[0].numel()
            blockings = (Blocking(size, min(block_size, size) or size) for size in (outputs, inputs))
            layers.append(Layer(f"{name}.weight".lstrip("."), cast(nn.Parameter, module.weight), groups, *blockings))
    return layers


@dataclass
class Factor:
    """Diagonal blocks of a covariance, and two numbers that depend on the kind of layer (formulas in thor.py)."""

    blocks: Tensor
    damping_scale: float  # this times the square root of the optimizer's damping is added to the diagonal
    inverse_scale: float  # the inverse is multiplied by this

    def add_damping(self, damping: float) -> Tensor:
        """Return the blocks with the damping added to their diagonals."""
        eye = torch.eye(self.blocks.shape[-1], device=self.blocks.device)
        return self.blocks + math.sqrt(damping) * self.damping_scale * eye


class FactorRecorder(TorchFunctionMode):
    """Mode of torch that records the factors of layers in each call of conv2d and linear with their weights."""

    def __init__(self, layers: dict[int, Layer], form: Form, loss_scale: float) -> None:
        """Record `layers`, whose keys are the ids of the weights that the network computes with (`id(weight)`)."""
        super().__init__()
        self.layers, self.form, self.loss_scale = layers, form, loss_scale
        self.input_factors: defaultdict[str, list[Factor]] = defaultdict(list)  # by layer, one for each call
        self.output_factors: defaultdict[str, list[Factor]] = defaultdict(list)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is F.conv2d or func is F.linear:
            call = LayerCall(*args, **(kwargs or {}))
            layer = self.layers.get(id(call.weight))
            if layer is not None and result.requires_grad:
                self.record_call(layer, call, result, is_conv=func is F.conv2d)
        return result

    def record_call(self, layer: Layer, call: LayerCall, output: Tensor, is_conv: bool) -> None:
        """Record the factor A of the call's inputs now, and G of its output gradients in the backward pass."""
        compute_factor = partial(compute_conv_factor, self.form) if is_conv else compute_dense_factor
        with torch.no_grad():
            matrices = call.extract_patches() if is_conv else call.input
            self.input_factors[layer.name].append(compute_factor(matrices, layer.inputs, 1.0))

        @torch.no_grad()
        def record_gradient(gradient: Tensor) -> None:
            # The loss is a mean over the batch: multiplied by the batch size, its gradients are those of single images.
            scale = (len(gradient) / self.loss_scale) ** 2
            # A convolution's gradient gets the shape of patches of a 1x1 kernel.
            matrices = split_groups(gradient, layer.groups)[:, :, :, None, None] if is_conv else gradient
            self.output_factors[layer.name].append(compute_factor(matrices, layer.outputs, scale))

        output.register_hook(record_gradient)  # type: ignore[no-untyped-call]

    def average_calls(self) -> dict[str, tuple[Factor, Factor]]:
        """Return A and G of each recorded layer, as means over its calls."""
        inputs, outputs = self.input_factors, self.output_factors
        names = [name for name in inputs if name in outputs]
        return {name: (average_factors(inputs[name]), average_factors(outputs[name])) for name in names}


def average_factors(factors: list[Factor]) -> Factor:
    """Return the mean covariance, with the two numbers of the last factor."""
    blocks = torch.stack([factor.blocks for factor in factors]).mean(0) if len(factors) > 1 else factors[0].blocks
    return Factor(blocks, factors[-1].damping_scale, factors[-1].inverse_scale)


@dataclass
class LayerCall:
    """The arguments of a call of conv2d or linear, by torch's names and defaults."""

    input: Tensor
    weight: Tensor
    bias: Tensor | None = None
    stride: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: int = 1

    def extract_patches(self) -> Tensor:
        """Return a view of the padded input: image, group, channel, kernel row and column, output row and column."""
        kernel, stride, dilation = tuple(self.weight.shape[2:]), to_pair(self.stride), to_pair(self.dilation)
        x = self.input
        margins = self.compute_margins(kernel, dilation)
        if any(margins):
            x = F.pad(x, margins)
        x = split_groups(x, self.groups)
        if kernel != (1, 1):
            x = x.contiguous()  # NCHW, so that patches are read in order
        # Rows and columns of the input that remain beside the first patch.
        remaining = [size - step * (k - 1) - 1 for size, step, k in zip(x.shape[3:], dilation, kernel, strict=True)]
        positions = [size // step + 1 for size, step in zip(remaining, stride, strict=True)]
        *outer, down, right = x.stride()
        steps = (down * dilation[0], right * dilation[1], down * stride[0], right * stride[1])
        return x.as_strided((*x.shape[:3], *kernel, *positions), (*outer, *steps))

    def compute_margins(self, kernel: tuple[int, ...], dilation: tuple[int, int]) -> tuple[int, ...]:
        """Return the padding left, right, above and below."""
        if self.padding == "valid":
            return (0, 0, 0, 0)
        if self.padding == "same":
            totals = [step * (k - 1) for step, k in zip(dilation, kernel, strict=True)]
            return (totals[1] // 2, totals[1] - totals[1] // 2, totals[0] // 2, totals[0] - totals[0] // 2)
        rows, columns = to_pair(self.padding)
        return (columns, columns, rows, rows)


def to_pair(value: int | Sequence[int]) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    return (value[0], value[-1])


def split_groups(x_NCHW: Tensor, groups: int) -> Tensor:
    """Return a view with the shape image, group, channel of the group, row, column."""
    grouped: Tensor = x_NCHW.unflatten(1, (groups, -1))  # type: ignore[no-untyped-call]
    return grouped


def compute_conv_factor(form: Form, patches: Tensor, blocking: Blocking, scale: float) -> Factor:
    """Return the mean of x x^T over all images and output positions, times `scale`; x is one patch as a column.

    `patches` has the shape of `LayerCall.extract_patches`.
    """
    batch, positions = patches.shape[0], patches.shape[-2] * patches.shape[-1]
    scale_of_both = math.sqrt(1 / positions)  # sqrt(b / R) in the formulas of thor.py
    if form == "gpu":
        patches = patches.mean(0, keepdim=True, dtype=torch.float32)
        batch = 1
    blocks = sum_covariance_blocks(patches, blocking).mul_(scale / (batch * positions))
    return Factor(blocks, scale_of_both, scale_of_both)


def compute_dense_factor(rows: Tensor, blocking: Blocking, scale: float) -> Factor:
    """Return the mean of x x^T over the rows, times `scale`; x is one row as a column."""
    rows = rows.reshape(-1, rows.shape[-1])
    patches = rows.T[None, None, :, None, None, None, :]  # of one image, with an output position for every row
    return Factor(sum_covariance_blocks(patches, blocking).mul_(scale / len(rows)), 1.0, 1.0)


def sum_covariance_blocks(patches: Tensor, blocking: Blocking) -> Tensor:
    """Return the diagonal blocks of the sum of x x^T over images and output positions, for each group."""
    groups = patches.shape[1]
    depth = patches.shape[-2] * patches.shape[-1]
    size = blocking.block_size
    total = torch.zeros(groups, blocking.block_count, size, size, device=patches.device)
    for chunk in torch.split(patches, max(1, MAX_PATCH_ELEMENTS // (groups * blocking.padded_size * depth))):
        images_per_product = find_divisor(len(chunk), max(1, FULL_DEPTH // depth))  # joined in one matrix product
        columns = copy_to_columns(chunk.view(-1, images_per_product, *chunk.shape[1:]), blocking)
        blocks = columns.view(-1, size, columns.shape[-1])
        products = torch.bmm(blocks, blocks.transpose(1, 2))
        total += products.view(-1, *total.shape).sum(0)
    return total


def find_divisor(number: int, limit: int) -> int:
    """Return the largest divisor of a number that is at most `limit`."""
    return max(divisor for divisor in range(1, min(number, limit) + 1) if number % divisor == 0)


def copy_to_columns(patches: Tensor, blocking: Blocking) -> Tensor:
    """Return patches as float32 columns, with rows in the order of the weight's inputs.

    The shape is (products, groups, padded size, images * positions).
    """
    products, images, groups, channels, *kernel, height, width = patches.shape
    allocate = torch.empty if blocking.size == blocking.padded_size else torch.zeros
    shape = (products, groups, blocking.padded_size, images * height * width)
    columns = allocate(shape, dtype=torch.float32, device=patches.device)
    target = columns[:, :, : blocking.size].view(products, groups, channels, *kernel, images, height, width)
    target.copy_(patches.movedim(1, -3))
    return columns


def invert(factors: Sequence[Tensor], old: Sequence[Tensor], scales: Sequence[float]) -> list[Tensor]:
    """Return the inverses of factors, computed block by block by Cholesky, each times the number in `scales`.

    For a block that is not positive definite, or whose inverse is not finite, the block in `old` is returned.
    """
    indices_by_size: defaultdict[int, list[int]] = defaultdict(list)  # blocks of one size are inverted together
    for index, factor in enumerate(factors):
        indices_by_size[factor.shape[-1]].append(index)
    inverses: dict[int, Tensor] = {}
    for indices in indices_by_size.values():
        inverted, usable = invert_by_cholesky(torch.cat([factors[index].flatten(0, -3) for index in indices]))
        counts = [factors[index].shape[:-2].numel() for index in indices]
        per_factor = zip(indices, torch.split(inverted, counts), torch.split(usable, counts), strict=True)
        for index, new, is_usable in per_factor:
            chosen = torch.where(is_usable[:, None, None], new * scales[index], old[index].reshape(new.shape))
            inverses[index] = chosen.view_as(factors[index])
    return [inverses[index] for index in range(len(factors))]


def invert_by_cholesky(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Return L^-T L^-1 of each block, and True for each that is finite and positive definite."""
    lower, failed = torch.linalg.cholesky_ex(blocks)
    eye = torch.eye(blocks.shape[-1], device=blocks.device).expand_as(blocks)
    root = torch.linalg.solve_triangular(lower, eye, upper=False)
    inverse = root.mT @ root
    return inverse, (failed == 0) & inverse.isfinite().flatten(1).all(1)


class LayerStack:
    """Layers of one shape, which are preconditioned together, with the inverses of their factors.

    The inverses are identity matrices until THOR computes them for the first time.
    """

    def __init__(self, layers: list[Layer]) -> None:
        self.layers, self.groups = layers, layers[0].groups
        self.outputs, self.inputs = layers[0].outputs, layers[0].inputs
        self.input_inverses = self.make_identities(self.inputs)
        self.output_inverses = self.make_identities(self.outputs)

    def make_identities(self, blocking: Blocking) -> Tensor:
        eye = torch.eye(blocking.block_size, device=self.layers[0].weight.device)
        return eye.repeat(len(self.layers) * self.groups, blocking.block_count, 1, 1)

    def list_inverses(self) -> Iterator[tuple[Layer, tuple[Tensor, Tensor]]]:
        """Yield each layer with views of the inverses of its A and its G."""
        inputs, outputs = (torch.split(stack, self.groups) for stack in (self.input_inverses, self.output_inverses))
        yield from zip(self.layers, zip(inputs, outputs, strict=True), strict=True)

    def precondition(self) -> None:
        """Turn each gradient g into G^-1 g A^-1, in place."""
        if all(layer.weight.grad is None for layer in self.layers):
            return
        # Zeros stand for the gradient of a layer that has none in this step; the result for them is dropped.
        gradients = [torch.zeros_like(w) if w.grad is None else w.grad for w in (layer.weight for layer in self.layers)]
        results = self.multiply(torch.stack(gradients)).view(len(gradients), *gradients[0].shape)
        torch._foreach_copy_(gradients, results.unbind())

    def multiply(self, gradients: Tensor) -> Tensor:
        """Return G^-1 g A^-1 for matrices of outputs by inputs, block by block, without padding."""
        outputs, inputs = self.outputs, self.inputs
        matrices = gradients.reshape(-1, outputs.size, inputs.size)
        if matrices.shape[1:] != (outputs.padded_size, inputs.padded_size):
            matrices = F.pad(matrices, (0, inputs.padded_size - inputs.size, 0, outputs.padded_size - outputs.size))
        left = self.output_inverses @ matrices.view(-1, outputs.block_count, outputs.block_size, inputs.padded_size)
        left = left.view(-1, outputs.padded_size, inputs.block_count, inputs.block_size).transpose(1, 2)
        result = (left @ self.input_inverses).transpose(1, 2).reshape(-1, outputs.padded_size, inputs.padded_size)
        return result[:, : outputs.size, : inputs.size].contiguous()


def stack_layers(layers: Sequence[Layer]) -> list[LayerStack]:
    """Return a stack for each shape of layers."""
    by_shape: defaultdict[tuple[Any, ...], list[Layer]] = defaultdict(list)
    for layer in layers:
        by_shape[tuple(layer.weight.shape), layer.groups].append(layer)
    return [LayerStack(same_shape) for same_shape in by_shape.values()]
