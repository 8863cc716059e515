"""AmoebaNet's cells on our kernels: 1x1 convolutions as matrix products, every state as a single operation.

The parts of a cell's output are written side by side by the kernels that make them. All that read a state through 1x1
convolutions read it in a single operation, whose backward pass adds their gradients up in the matrix products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from viaduct.kernels import grouped
from viaduct.kernels.bottleneck import weight_gradient
from viaduct.kernels.copies import Weights
from viaduct.kernels.halves import HalvedFunction
from viaduct.kernels.norm import rows_of
from viaduct.kernels.pooling import Pool, as_rows
from viaduct.kernels.terms import MOST_READERS, Home, Term, as_images, state
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

Side = tuple[int, int]  # of a combination: its number, and 0 for left or 1 for right
Squeezed = (Squeezed3x3, Squeezed1x7And7x1)


class PointwiseFunction(torch.autograd.Function):
    """Several 1x1 convolutions of the same image."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, copies: list[Tensor], *weights: Tensor) -> Any:
        rows = as_rows(x)
        ctx.rows, ctx.copies, ctx.shape, ctx.dtypes = rows, copies, x.shape, [weight.dtype for weight in weights]
        size = (x.shape[0], *x.shape[2:])
        return tuple(as_images(rows @ copy.flatten(1).t(), size) for copy in copies)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        arrived = [as_rows(gradient) for gradient in gradients]
        total = arrived[0] @ ctx.copies[0].flatten(1)
        for gradient, copy in zip(arrived[1:], ctx.copies[1:], strict=True):
            total.addmm_(gradient, copy.flatten(1))
        changes = [weight_gradient(gradient, ctx.rows)[:, :, None, None] for gradient in arrived]
        weights = [change.to(dtype) for change, dtype in zip(changes, ctx.dtypes, strict=True)]
        made = as_images(total, (ctx.shape[0], *ctx.shape[2:]))
        ctx.rows = ctx.copies = None
        return made, None, *weights


def apply_pointwise(x: Tensor, convs: list[nn.Conv2d], weights: Weights) -> list[Tensor]:
    copies = [weights[conv] for conv in convs]
    return list(PointwiseFunction.apply(x, copies, *(conv.weight for conv in convs)))  # type: ignore[no-untyped-call]


class ConvolutionFunction(torch.autograd.Function):
    """A convolution larger than 1x1, over SAME padding."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, conv: nn.Conv2d, copy: Tensor, weight: Tensor) -> Tensor:
        ctx.x, ctx.conv, ctx.copy, ctx.dtype = x, conv, copy, weight.dtype
        return grouped.forward(x, copy, conv)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        made, change = grouped.backward(rows_of(gradient), ctx.x, ctx.copy, ctx.conv)
        ctx.x = ctx.copy = None
        return made, None, None, change.to(ctx.dtype)


class JoinedFunction(torch.autograd.Function):
    """Parts that lie side by side in `home` already, given to each of `readers` readers.

    Takes every part once for each reader, so that gradients return to them separately.
    """

    @staticmethod
    def forward(ctx: Any, home: Home, readers: int, *parts: Tensor) -> Any:
        ctx.set_materialize_grads(False)
        ctx.parts = len(parts) // readers
        return tuple(home.as_images() for _ in range(readers))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        cut = [
            list(as_channels_last(gradient).chunk(ctx.parts, 1)) if gradient is not None else [None] * ctx.parts
            for gradient in gradients
        ]
        return None, None, *(piece for pieces in zip(*cut, strict=True) for piece in pieces)


def as_channels_last(x_NCHW: Tensor) -> Tensor:
    """Return images channels_last; the gradient of a mean has a single number for many pixels."""
    return x_NCHW.contiguous(memory_format=torch.channels_last)


@dataclass(frozen=True)
class Wiring:
    """Readers of a state."""

    raw: list[Side]
    pointwise: list[tuple[Side, nn.Conv2d]]
    place: int | None  # in the cell's output


WIRES: WeakKeyDictionary[Cell, list[Wiring]] = WeakKeyDictionary()  # found once for every cell


def find_wirings(cell: Cell) -> list[Wiring]:
    """Return the readers of all states of a cell."""
    if cell not in WIRES:
        WIRES[cell] = [make_wiring(cell, index) for index in range(2 + len(cell.combinations))]
    return WIRES[cell]


def make_wiring(cell: Cell, index: int) -> Wiring:
    raw, convs = list[Side](), list[tuple[Side, nn.Conv2d]]()
    for number, combination in enumerate(cell.combinations):
        for side, layer in enumerate((combination.left, combination.right)):
            if combination.choices[side][1] != index:  # type: ignore[index]
                continue
            if (conv := first_conv(layer)) is None:  # type: ignore[arg-type]
                raw.append((number, side))
            else:
                convs.append(((number, side), conv))
    return Wiring(raw, convs, cell.output.index(index) if index in cell.output else None)


def first_conv(layer: nn.Module) -> nn.Conv2d | None:
    """Return the convolution that reads the state, behind a ReLU; None where a pool or nothing does."""
    if isinstance(layer, Pointwise):
        return layer.conv_1x1
    return layer.pre_1x1 if isinstance(layer, Squeezed) else None


def cell_fits(cell: Cell) -> bool:
    """Return True if all operations are known, 1x1 convolutions have stride 1, added pools agree in stride, and states
    have few readers."""
    known = (nn.Identity, SameMaxPool2d, PointwiseAfterPool, Pointwise, *Squeezed)
    pairs = [(combination.left, combination.right) for combination in cell.combinations]
    wired = find_wirings(cell)
    strides = all(conv.stride == (1, 1) for wires in wired for _, conv in wires.pointwise)
    alike = all(len({layer.stride for layer in pair if isinstance(layer, SameMaxPool2d)}) < 2 for pair in pairs)
    return (
        strides
        and alike
        and all(map(has_few_readers, wired))
        and all(isinstance(layer, known) for pair in pairs for layer in pair)
    )


def readers_of(wires: Wiring) -> list[bool]:
    """Return for each reader inside the cell whether it reads through a ReLU."""
    return [False] * len(wires.raw) + [True] * bool(wires.pointwise)


def has_few_readers(wires: Wiring) -> bool:
    outside = 0 if wires.place is None else 3  # two cells, and the auxiliary head
    return len(readers_of(wires)) + outside <= MOST_READERS


class Pass:
    """A pass through a cell, whose output has so many readers."""

    def __init__(self, cell: Cell, weights: Weights, readers: int, keep: Tensor | None) -> None:
        self.cell, self.weights, self.readers, self.keep = cell, weights, readers, keep
        self.waiting: dict[Side, Tensor] = {}  # what the sides of combinations have been given
        self.parts: dict[int, list[Tensor]] = {}
        self.home = Home(len(cell.output))

    def run(self, x: Tensor, previous: Tensor | list[Tensor]) -> list[Tensor]:
        """Return the output for each reader. The first cell gets its second state as it is, as `readers_of` says."""
        self.add_state(
            0, [Term(apply_pointwise(x, [self.cell.entry.conv_1x1], self.weights)[0], self.cell.entry.beginning_bn)]
        )
        if isinstance(previous, list):
            self.hand_out(find_wirings(self.cell)[1], previous)
        else:
            self.add_state(1, [self.enter_previous(previous)])
        for number, combination in enumerate(self.cell.combinations):
            sides = (combination.left, combination.right)
            self.add_state(number + 2, [self.make_term((number, side), layer) for side, layer in enumerate(sides)])  # type: ignore[arg-type]
        parts = [part for place in range(len(self.cell.output)) for part in self.parts[place]]
        return list(JoinedFunction.apply(self.home, self.readers, *parts))  # type: ignore[no-untyped-call]

    def add_state(self, index: int, terms: list[Term]) -> None:
        """Compute a state and give it to all that read it."""
        wires = find_wirings(self.cell)[index]
        outside = 0 if wires.place is None else self.readers
        home = None if wires.place is None else self.home.place(wires.place, terms)
        made = state(terms, readers_of(wires) + [True] * outside, home)
        self.hand_out(wires, made)
        if wires.place is not None:
            self.parts[wires.place] = made[-outside:]

    def hand_out(self, wires: Wiring, made: list[Tensor]) -> None:
        """Give a state to its readers inside the cell."""
        self.waiting |= dict(zip(wires.raw, made, strict=False))
        if wires.pointwise:
            results = apply_pointwise(made[len(wires.raw)], [conv for _, conv in wires.pointwise], self.weights)
            self.waiting |= {side: result for (side, _), result in zip(wires.pointwise, results, strict=True)}

    def enter_previous(self, previous: Tensor) -> Term:
        entry = self.cell.previous
        if isinstance(entry, PreviousEntry):
            return Term(apply_pointwise(previous, [entry.prev_1x1], self.weights)[0], entry.prev_bn)
        assert isinstance(entry, FactorisedReduction)
        convs = (entry.path1_conv, entry.path2_conv)
        copies = [self.weights[conv] for conv in convs]
        made = HalvedFunction.apply(previous, copies, *(conv.weight for conv in convs))  # type: ignore[no-untyped-call]
        return Term(made, entry.final_path_bn)

    def make_term(self, side: Side, layer: nn.Module) -> Term:
        """Return a side of a combination, computed up to what the kernel that adds both sides can do."""
        x = self.waiting.pop(side)
        keep = self.draw_factor(side, x)
        match layer:
            case SameMaxPool2d():
                return Term(x, pool=pool_of(layer), keep=keep)
            case PointwiseAfterPool():
                (seen,) = state([Term(x, pool=pool_of(layer.pool))], [False])
                return Term(apply_pointwise(seen, [layer.conv_1x1], self.weights)[0], layer.bn_1, keep=keep)
            case Pointwise():
                return Term(x, layer.bn_1, keep=keep)
            case Squeezed3x3() | Squeezed1x7And7x1():
                return Term(self.apply_squeezed(x, layer), layer.post_bn, keep=keep)
        return Term(x)

    def apply_squeezed(self, x: Tensor, layer: Squeezed3x3 | Squeezed1x7And7x1) -> Tensor:
        (x,) = state([Term(x, layer.pre_bn)], [True])
        for conv, norm in list_inner_layers(layer):
            x = ConvolutionFunction.apply(x, conv, self.weights[conv], conv.weight)  # type: ignore[no-untyped-call]
            (x,) = state([Term(x, norm)], [True])
        return apply_pointwise(x, [layer.post_1x1], self.weights)[0]

    def draw_factor(self, side: Side, x: Tensor) -> Tensor | None:
        """Draw the factor of drop path for each example; *none* has no factor."""
        number, which = side
        name: str = self.cell.combinations[number].choices[which][0]  # type: ignore[index,assignment]
        if self.keep is None or name == "none":
            return None
        return drop_path(x.new_ones((len(x), 1, 1, 1)), self.keep).flatten().float()


def list_inner_layers(layer: Squeezed3x3 | Squeezed1x7And7x1) -> list[tuple[nn.Conv2d, nn.BatchNorm2d]]:
    """Return the layers between the 1x1 convolutions."""
    if isinstance(layer, Squeezed3x3):
        return [(layer.conv_3x3, layer.bn)]
    return [(layer.conv_1x7, layer.bn_1x7_7x1), (layer.conv_7x1, layer.bn)]


def pool_of(layer: nn.Module) -> Pool:
    assert isinstance(layer, SameMaxPool2d)
    return Pool(layer.kernel, layer.stride, average=isinstance(layer, SameAveragePool2d))
