"""AmoebaNet's cells on our kernels: 1x1 convolutions as matrix products, every state as a single operation.

The parts of a cell's output are written side by side into one tensor. All 1x1 convolutions that read a state are a
single operation: its backward pass adds their input gradients within the matrix products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from viaduct.kernels import grouped
from viaduct.kernels.bottleneck import compute_weight_gradient
from viaduct.kernels.copies import Weights
from viaduct.kernels.halves import FactorisedReductionFunction
from viaduct.kernels.norm import view_as_rows
from viaduct.kernels.pooling import Pool, convert_to_rows
from viaduct.kernels.terms import MAX_READERS, OutputBuffer, Term, sum_terms, view_as_images
from viaduct.models.amoebanet_cells import (
    Cell,
    FactorisedReduction,
    Pointwise,
    PointwiseAfterPool,
    PreviousEntry,
    Squeezed1x7And7x1,
    Squeezed3x3,
    drop_path,
)
from viaduct.models.padding import SameAveragePool2d, SameMaxPool2d

Side = tuple[int, int]  # number of a combination, and 0 for its left or 1 for its right side
Squeezed = (Squeezed3x3, Squeezed1x7And7x1)  # 3x3, or 1x7 and 7x1, between two 1x1 convolutions with fewer channels


class PointwiseFunction(torch.autograd.Function):
    """Several 1x1 (pointwise) convolutions of the same images; `cast_weights` have the dtype of x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cast_weights: list[Tensor], *weights: Tensor) -> Any:
        rows = convert_to_rows(x)
        ctx.rows, ctx.cast_weights, ctx.shape = rows, cast_weights, x.shape
        ctx.dtypes = [weight.dtype for weight in weights]
        size = (x.shape[0], *x.shape[2:])
        return tuple(view_as_images(rows @ cast_weight.flatten(1).t(), size) for cast_weight in cast_weights)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        gradient_rows = [convert_to_rows(gradient) for gradient in gradients]
        total = gradient_rows[0] @ ctx.cast_weights[0].flatten(1)
        for gradient, cast_weight in zip(gradient_rows[1:], ctx.cast_weights[1:], strict=True):
            total.addmm_(gradient, cast_weight.flatten(1))
        weight_gradients = [compute_weight_gradient(gradient, ctx.rows)[:, :, None, None] for gradient in gradient_rows]
        weights = [gradient.to(dtype) for gradient, dtype in zip(weight_gradients, ctx.dtypes, strict=True)]
        x_gradient = view_as_images(total, (ctx.shape[0], *ctx.shape[2:]))
        ctx.rows = ctx.cast_weights = None
        return x_gradient, None, *weights


def apply_pointwise(x: Tensor, convs: list[nn.Conv2d], weights: Weights) -> list[Tensor]:
    """Return the outputs of several 1x1 convolutions of the same images."""
    cast_weights = [weights[conv] for conv in convs]
    return list(PointwiseFunction.apply(x, cast_weights, *(conv.weight for conv in convs)))  # type: ignore[no-untyped-call]


class ConvolutionFunction(torch.autograd.Function):
    """Convolution larger than 1x1, with SAME padding; `cast_weight` has the dtype of x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, conv: nn.Conv2d, cast_weight: Tensor, weight: Tensor) -> Tensor:
        ctx.x, ctx.conv, ctx.cast_weight, ctx.dtype = x, conv, cast_weight, weight.dtype
        return grouped.forward(x, cast_weight, conv)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x_gradient, weight_gradient = grouped.backward(view_as_rows(gradient), ctx.x, ctx.cast_weight, ctx.conv)
        ctx.x = ctx.cast_weight = None
        return x_gradient, None, None, weight_gradient.to(ctx.dtype)


class JoinedFunction(torch.autograd.Function):
    """Concatenation of parts that are already side by side in `buffer`; it is returned once for each reader.

    Every part is passed once for each reader, so that autograd passes the readers' gradients separately.
    """

    @staticmethod
    def forward(ctx: Any, buffer: OutputBuffer, readers: int, *parts: Tensor) -> Any:
        ctx.set_materialize_grads(False)
        ctx.parts = len(parts) // readers
        return tuple(buffer.view_as_images() for _ in range(readers))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        chunks = [split_gradient(gradient, ctx.parts) for gradient in gradients]  # a list of parts for each reader
        return None, None, *(chunk for part_chunks in zip(*chunks, strict=True) for chunk in part_chunks)


def split_gradient(gradient: Tensor | None, parts: int) -> Sequence[Tensor | None]:
    """Return a reader's gradient of each part of a concatenation; None for each if the reader has no gradient."""
    if gradient is None:
        return [None] * parts
    # Not all gradients are channels_last: that of a mean has stride 0 over the pixels.
    return gradient.contiguous(memory_format=torch.channels_last).chunk(parts, 1)


@dataclass(frozen=True)
class Wiring:
    """Readers of a state inside its cell, and its place in the cell's output."""

    raw: list[Side]  # sides that read it directly
    pointwise: list[tuple[Side, nn.Conv2d]]  # 1x1 convolutions that read it through a ReLU
    output_index: int | None  # position in the cell's output; None if it is not part of the output


WIRINGS: WeakKeyDictionary[Cell, list[Wiring]] = WeakKeyDictionary()  # cache of `find_wirings`


def find_wirings(cell: Cell) -> list[Wiring]:
    if cell not in WIRINGS:
        WIRINGS[cell] = [make_wiring(cell, index) for index in range(2 + len(cell.combinations))]
    return WIRINGS[cell]


def make_wiring(cell: Cell, index: int) -> Wiring:
    """Return the readers of one state of a cell."""
    raw: list[Side] = []
    convs: list[tuple[Side, nn.Conv2d]] = []
    for number, (combination, operations) in enumerate(zip(cell.combinations, cell.plan.combinations, strict=True)):
        for side, layer in enumerate((combination.left, combination.right)):
            _, state = operations[side]
            if state != index:
                continue
            if (conv := find_first_conv(layer)) is None:  # type: ignore[arg-type]
                raw.append((number, side))
            else:
                convs.append(((number, side), conv))
    return Wiring(raw, convs, cell.plan.output.index(index) if index in cell.plan.output else None)


def find_first_conv(layer: nn.Module) -> nn.Conv2d | None:
    """Return the 1x1 convolution that reads the state through a ReLU; None if the layer begins differently."""
    if isinstance(layer, Pointwise):
        return layer.conv_1x1
    return layer.pre_1x1 if isinstance(layer, Squeezed) else None


def can_fuse_cell(cell: Cell) -> bool:
    """Return True if our kernels support a cell.

    All its operations must be known, its 1x1 convolutions must have stride 1, the pools of a combination the same
    stride, and its states no more readers than `merge_kernel` supports.
    """
    known = (nn.Identity, SameMaxPool2d, PointwiseAfterPool, Pointwise, *Squeezed)
    pairs = [(combination.left, combination.right) for combination in cell.combinations]
    wirings = find_wirings(cell)
    has_unit_strides = all(conv.stride == (1, 1) for wiring in wirings for _, conv in wiring.pointwise)
    pools_agree = all(len({layer.stride for layer in pair if isinstance(layer, SameMaxPool2d)}) < 2 for pair in pairs)
    # A cell's output is also read by two other cells and by the auxiliary head.
    readers = [len(list_readers(wiring)) + (0 if wiring.output_index is None else 3) for wiring in wirings]
    is_known = all(isinstance(layer, known) for pair in pairs for layer in pair)
    return has_unit_strides and pools_agree and max(readers) <= MAX_READERS and is_known


def list_readers(wiring: Wiring) -> list[bool]:
    """Return a list with True for each reader inside the cell behind a ReLU; all 1x1 convolutions are one reader."""
    return [False] * len(wiring.raw) + ([True] if wiring.pointwise else [])


class CellPass:
    """Forward pass of one cell.

    `weights` are the convolutions' weights in the precision of computation. `readers` is the number of readers of the
    output. `keep_probability` is drop path's probability to keep an operation.
    """

    def __init__(self, cell: Cell, weights: Weights, readers: int, keep_probability: Tensor | None) -> None:
        self.cell, self.weights, self.readers, self.keep_probability = cell, weights, readers, keep_probability
        self.side_inputs: dict[Side, Tensor] = {}  # input of each side of the combinations
        self.parts: dict[int, list[Tensor]] = {}  # position in the output -> the state, once for each outside reader
        self.buffer = OutputBuffer(len(cell.plan.output))

    def run(self, x: Tensor, previous: Tensor | list[Tensor]) -> list[Tensor]:
        """Return the output for each reader. In the first cell `previous` is the second state, once for each reader."""
        (entered,) = apply_pointwise(x, [self.cell.entry.conv_1x1], self.weights)
        self.add_state(0, [Term(entered, self.cell.entry.beginning_bn)])
        if isinstance(previous, list):
            self.distribute(find_wirings(self.cell)[1], previous)
        else:
            self.add_state(1, [self.enter_previous(previous)])
        for number, combination in enumerate(self.cell.combinations):
            sides = (combination.left, combination.right)
            self.add_state(number + 2, [self.make_term((number, side), layer) for side, layer in enumerate(sides)])  # type: ignore[arg-type]
        parts = [part for index in range(len(self.cell.plan.output)) for part in self.parts[index]]
        return list(JoinedFunction.apply(self.buffer, self.readers, *parts))  # type: ignore[no-untyped-call]

    def add_state(self, index: int, terms: list[Term]) -> None:
        """Compute a state and pass it to all its readers."""
        wiring = find_wirings(self.cell)[index]
        outside_readers = 0 if wiring.output_index is None else self.readers
        buffer = None if wiring.output_index is None else self.buffer.make_slice(wiring.output_index, terms)
        outputs = sum_terms(terms, list_readers(wiring) + [True] * outside_readers, buffer)
        self.distribute(wiring, outputs)
        if wiring.output_index is not None:
            self.parts[wiring.output_index] = outputs[-outside_readers:]

    def distribute(self, wiring: Wiring, outputs: list[Tensor]) -> None:
        """Pass a state to its readers inside the cell; `outputs` begin in the order of `list_readers`."""
        self.side_inputs |= dict(zip(wiring.raw, outputs, strict=False))
        if wiring.pointwise:
            results = apply_pointwise(outputs[len(wiring.raw)], [conv for _, conv in wiring.pointwise], self.weights)
            self.side_inputs |= {side: result for (side, _), result in zip(wiring.pointwise, results, strict=True)}

    def enter_previous(self, previous: Tensor) -> Term:
        """Return the second state's term: the previous cell's output behind its 1x1 convolution or reduction."""
        entry = self.cell.previous
        if isinstance(entry, PreviousEntry):
            return Term(apply_pointwise(previous, [entry.prev_1x1], self.weights)[0], entry.prev_bn)
        assert isinstance(entry, FactorisedReduction)
        convs = (entry.path1_conv, entry.path2_conv)
        cast_weights = [self.weights[conv] for conv in convs]
        convolution_weights = [conv.weight for conv in convs]
        reduced = FactorisedReductionFunction.apply(previous, cast_weights, *convolution_weights)  # type: ignore[no-untyped-call]
        return Term(reduced, entry.final_path_bn)

    def make_term(self, side: Side, layer: nn.Module) -> Term:
        """Return a side of a combination as a term, whose last norm or pool is left to the kernel that adds both."""
        x = self.side_inputs.pop(side)
        factor = self.draw_factor(side, x)
        match layer:
            case SameMaxPool2d():
                return Term(x, pool=make_pool(layer), factor=factor)
            case PointwiseAfterPool():
                (pooled,) = sum_terms([Term(x, pool=make_pool(layer.pool))], [False])
                return Term(apply_pointwise(pooled, [layer.conv_1x1], self.weights)[0], layer.bn_1, factor=factor)
            case Pointwise():
                return Term(x, layer.bn_1, factor=factor)
            case Squeezed3x3() | Squeezed1x7And7x1():
                return Term(self.apply_squeezed(x, layer), layer.post_bn, factor=factor)
        return Term(x)

    def apply_squeezed(self, x: Tensor, layer: Squeezed3x3 | Squeezed1x7And7x1) -> Tensor:
        """Run a squeezed convolution behind its first 1x1 convolution, up to the input of its last norm."""
        (x,) = sum_terms([Term(x, layer.pre_bn)], [True])
        for conv, norm in list_inner_layers(layer):
            x = ConvolutionFunction.apply(x, conv, self.weights[conv], conv.weight)  # type: ignore[no-untyped-call]
            (x,) = sum_terms([Term(x, norm)], [True])
        return apply_pointwise(x, [layer.post_1x1], self.weights)[0]

    def draw_factor(self, side: Side, x: Tensor) -> Tensor | None:
        """Return drop path's random factor for each example; None without drop path and for the operation *none*."""
        number, position = side
        name, _ = self.cell.plan.combinations[number][position]
        if self.keep_probability is None or name == "none":
            return None
        return drop_path(x.new_ones((len(x), 1, 1, 1)), self.keep_probability).flatten().float()


def list_inner_layers(layer: Squeezed3x3 | Squeezed1x7And7x1) -> list[tuple[nn.Conv2d, nn.BatchNorm2d]]:
    if isinstance(layer, Squeezed3x3):
        return [(layer.conv_3x3, layer.bn)]
    return [(layer.conv_1x7, layer.bn_1x7_7x1), (layer.conv_7x1, layer.bn)]


def make_pool(layer: nn.Module) -> Pool:
    assert isinstance(layer, SameMaxPool2d)
    return Pool(layer.kernel, layer.stride, average=isinstance(layer, SameAveragePool2d))
