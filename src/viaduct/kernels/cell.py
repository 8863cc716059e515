"""AmoebaNet's cells on our kernels: 1x1 convolutions as products of matrices, every state as one operation.

The parts of a cell's output are written side by side by the kernels that make them. All that read a state through 1x1
convolutions read it in one operation, whose way back adds their gradients up in the products themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from viaduct.kernels import grouped
from viaduct.kernels.bottleneck import Weights, weight_gradient
from viaduct.kernels.halves import HalvedFunction
from viaduct.kernels.norm import rows_of
from viaduct.kernels.pooling import Pool, as_rows
from viaduct.kernels.terms import MOST_READERS, Home, Term, picture, state
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


class PointFunction(torch.autograd.Function):
    """Several 1x1 convolutions of the same picture."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, copies: list[Tensor], *weights: Tensor) -> Any:
        rows = as_rows(x)
        ctx.rows, ctx.copies, ctx.shape, ctx.dtypes = rows, copies, x.shape, [weight.dtype for weight in weights]
        size = (x.shape[0], *x.shape[2:])
        return tuple(picture(rows @ copy.flatten(1).t(), size) for copy in copies)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        arrived = [as_rows(gradient) for gradient in gradients]
        total = arrived[0] @ ctx.copies[0].flatten(1)
        for gradient, copy in zip(arrived[1:], ctx.copies[1:], strict=True):
            total.addmm_(gradient, copy.flatten(1))
        changes = [weight_gradient(gradient, ctx.rows)[:, :, None, None] for gradient in arrived]
        weights = [change.to(dtype) for change, dtype in zip(changes, ctx.dtypes, strict=True)]
        made = picture(total, (ctx.shape[0], *ctx.shape[2:]))
        ctx.rows = ctx.copies = None
        return made, None, *weights


def pointed(x: Tensor, convs: list[nn.Conv2d], weights: Weights) -> list[Tensor]:
    copies = [weights[conv] for conv in convs]
    return list(PointFunction.apply(x, copies, *(conv.weight for conv in convs)))  # type: ignore[no-untyped-call]


class ConvolutionFunction(torch.autograd.Function):
    """A convolution of more than one cell, over SAME padding."""

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
    """Parts that stand side by side at home already, given to each of `readers` readers.

    Takes every part once for each reader, so that gradients go back to them apart.
    """

    @staticmethod
    def forward(ctx: Any, home: Home, readers: int, *parts: Tensor) -> Any:
        ctx.set_materialize_grads(False)
        ctx.parts = len(parts) // readers
        return tuple(home.pictures() for _ in range(readers))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        cut = [list(even(one).chunk(ctx.parts, 1)) if one is not None else [None] * ctx.parts for one in gradients]
        return None, None, *(piece for pieces in zip(*cut, strict=True) for piece in pieces)


def even(x_NCHW: Tensor) -> Tensor:
    """Channels_last; a mean sends back one number for many pixels."""
    return x_NCHW.contiguous(memory_format=torch.channels_last)


@dataclass(frozen=True)
class Wiring:
    """Who reads a state."""

    raw: list[Side]
    pointed: list[tuple[Side, nn.Conv2d]]
    place: int | None  # in the cell's output


WIRES: WeakKeyDictionary[Cell, list[Wiring]] = WeakKeyDictionary()  # found once for every cell


def wires_of(cell: Cell) -> list[Wiring]:
    """Of all its states."""
    if cell not in WIRES:
        WIRES[cell] = [wiring(cell, index) for index in range(2 + len(cell.combinations))]
    return WIRES[cell]


def wiring(cell: Cell, index: int) -> Wiring:
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
    """Which sees the state, behind a ReLU; None where a pool does, or nothing."""
    if isinstance(layer, Pointwise):
        return layer.conv_1x1
    return layer.pre_1x1 if isinstance(layer, Squeezed) else None


def cell_fits(cell: Cell) -> bool:
    """Every operation is known, products see all pixels, pools that are added as many, and states have few readers."""
    known = (nn.Identity, SameMaxPool2d, PointwiseAfterPool, Pointwise, *Squeezed)
    pairs = [(combination.left, combination.right) for combination in cell.combinations]
    wired = wires_of(cell)
    strides = all(conv.stride == (1, 1) for wires in wired for _, conv in wires.pointed)
    alike = all(len({layer.stride for layer in pair if isinstance(layer, SameMaxPool2d)}) < 2 for pair in pairs)
    return strides and alike and all(map(few, wired)) and all(isinstance(one, known) for pair in pairs for one in pair)


def readers_of(wires: Wiring) -> list[bool]:
    """Inside the cell; whether each reads through a ReLU."""
    return [False] * len(wires.raw) + [True] * bool(wires.pointed)


def few(wires: Wiring) -> bool:
    outside = 0 if wires.place is None else 3  # two cells, and the auxiliary head
    return len(readers_of(wires)) + outside <= MOST_READERS


class Pass:
    """One pass through a cell, whose output has so many readers."""

    def __init__(self, cell: Cell, weights: Weights, readers: int, keep: Tensor | None) -> None:
        self.cell, self.weights, self.readers, self.keep = cell, weights, readers, keep
        self.waiting: dict[Side, Tensor] = {}  # what the sides of combinations have been given
        self.parts: dict[int, list[Tensor]] = {}
        self.home = Home(len(cell.output))

    def run(self, x: Tensor, previous: Tensor | list[Tensor]) -> list[Tensor]:
        """The output, for each reader. The first cell gets its second state as it is, as `readers_of` says."""
        self.give(0, [Term(pointed(x, [self.cell.entry.conv_1x1], self.weights)[0], self.cell.entry.beginning_bn)])
        if isinstance(previous, list):
            self.hand(wires_of(self.cell)[1], previous)
        else:
            self.give(1, [self.entered(previous)])
        for number, combination in enumerate(self.cell.combinations):
            sides = (combination.left, combination.right)
            self.give(number + 2, [self.term((number, side), layer) for side, layer in enumerate(sides)])  # type: ignore[arg-type]
        parts = [part for place in range(len(self.cell.output)) for part in self.parts[place]]
        return list(JoinedFunction.apply(self.home, self.readers, *parts))  # type: ignore[no-untyped-call]

    def give(self, index: int, terms: list[Term]) -> None:
        """A state, to all that read it."""
        wires = wires_of(self.cell)[index]
        outside = 0 if wires.place is None else self.readers
        home = None if wires.place is None else self.home.place(wires.place, terms)
        made = state(terms, readers_of(wires) + [True] * outside, home)
        self.hand(wires, made)
        if wires.place is not None:
            self.parts[wires.place] = made[-outside:]

    def hand(self, wires: Wiring, made: list[Tensor]) -> None:
        """To those who read it inside the cell."""
        self.waiting |= dict(zip(wires.raw, made, strict=False))
        if wires.pointed:
            results = pointed(made[len(wires.raw)], [conv for _, conv in wires.pointed], self.weights)
            self.waiting |= {side: result for (side, _), result in zip(wires.pointed, results, strict=True)}

    def entered(self, previous: Tensor) -> Term:
        entry = self.cell.previous
        if isinstance(entry, PreviousEntry):
            return Term(pointed(previous, [entry.prev_1x1], self.weights)[0], entry.prev_bn)
        assert isinstance(entry, FactorisedReduction)
        convs = (entry.path1_conv, entry.path2_conv)
        copies = [self.weights[conv] for conv in convs]
        made = HalvedFunction.apply(previous, copies, *(conv.weight for conv in convs))  # type: ignore[no-untyped-call]
        return Term(made, entry.final_path_bn)

    def term(self, side: Side, layer: nn.Module) -> Term:
        """One side of a combination, as far as it can be left to the kernel that adds it to the other."""
        x = self.waiting.pop(side)
        keep = self.factor(side, x)
        match layer:
            case SameMaxPool2d():
                return Term(x, pool=pool_of(layer), keep=keep)
            case PointwiseAfterPool():
                (seen,) = state([Term(x, pool=pool_of(layer.pool))], [False])
                return Term(pointed(seen, [layer.conv_1x1], self.weights)[0], layer.bn_1, keep=keep)
            case Pointwise():
                return Term(x, layer.bn_1, keep=keep)
            case Squeezed3x3() | Squeezed1x7And7x1():
                return Term(self.squeezed(x, layer), layer.post_bn, keep=keep)
        return Term(x)

    def squeezed(self, x: Tensor, layer: Squeezed3x3 | Squeezed1x7And7x1) -> Tensor:
        (x,) = state([Term(x, layer.pre_bn)], [True])
        for conv, norm in inside(layer):
            x = ConvolutionFunction.apply(x, conv, self.weights[conv], conv.weight)  # type: ignore[no-untyped-call]
            (x,) = state([Term(x, norm)], [True])
        return pointed(x, [layer.post_1x1], self.weights)[0]

    def factor(self, side: Side, x: Tensor) -> Tensor | None:
        """Of drop path, for each example; what stands for *none* is always kept."""
        number, which = side
        name: str = self.cell.combinations[number].choices[which][0]  # type: ignore[index,assignment]
        if self.keep is None or name == "none":
            return None
        return drop_path(x.new_ones((len(x), 1, 1, 1)), self.keep).flatten().float()


def inside(layer: Squeezed3x3 | Squeezed1x7And7x1) -> list[tuple[nn.Conv2d, nn.BatchNorm2d]]:
    """Between the 1x1 convolutions."""
    if isinstance(layer, Squeezed3x3):
        return [(layer.conv_3x3, layer.bn)]
    return [(layer.conv_1x7, layer.bn_1x7_7x1), (layer.conv_7x1, layer.bn)]


def pool_of(layer: nn.Module) -> Pool:
    assert isinstance(layer, SameMaxPool2d)
    return Pool(layer.kernel, layer.stride, average=isinstance(layer, SameAveragePool2d))
