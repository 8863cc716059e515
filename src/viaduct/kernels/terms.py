"""A state of a cell as one operation: the sum of one or two terms, given to each of its readers.

Every reader gets a tensor of its own over the same memory, so that what they send back arrives apart and is added up
by the kernel that needs the sum, and not by passes of autograd's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from viaduct.kernels import pooling, terms_kernels
from viaduct.kernels.norm import Norm, Sums, gradient_sums, input_gradient, norm_of, rows_of
from viaduct.kernels.pooling import Pool, as_rows
from viaduct.kernels.sizes import NEIGHBOURS, blocks, gather_for, tickets, tile

MOST_READERS = 4


@dataclass(frozen=True)
class Term:
    """A picture: behind a norm, behind a pool, or as it is; `keep`: times a factor for each example."""

    x: Tensor
    layer: nn.BatchNorm2d | None = None
    pool: Pool | None = None
    keep: Tensor | None = None


@dataclass(frozen=True)
class Made:
    """What the way back needs of a term."""

    x: Tensor | None  # rows, of a norm
    norm: Norm | None
    pool: Pool | None
    chosen: Tensor | None  # of a max pool
    keep: Tensor | None
    shape: tuple[int, ...]


class Home:
    """Where states of one size stand side by side."""

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.rows: Tensor | None = None
        self.size = (0, 0, 0)

    def place(self, index: int, terms: list[Term]) -> Place:
        x = terms[0].x
        channels = x.shape[1]
        if self.rows is None:
            self.size = output_size(terms[0])
            self.rows = x.new_empty((self.size[0] * self.size[1] * self.size[2], channels * self.parts))
        return Place(self.rows[:, index * channels : (index + 1) * channels])

    def pictures(self) -> Tensor:
        return picture(self.rows, self.size)


@dataclass(frozen=True)
class Place:
    """Some columns of a tensor that is written in parts; hidden from autograd, which has no part in it."""

    rows: Tensor


def output_size(term: Term) -> tuple[int, int, int]:
    """Pictures, height and width of what the term is."""
    count, _, *sizes = term.x.shape
    height, width = sizes if term.pool is None else term.pool.output(*sizes)
    return count, height, width


def state(terms: list[Term], readers: list[bool], home: Place | None = None) -> list[Tensor]:
    """The sum of the terms, for each reader; those that are True read it through a ReLU.

    `home`: where the latter is to stand.
    """
    layers = [term.layer for term in terms if term.layer is not None]
    weights = [tensor for layer in layers for tensor in (layer.weight, layer.bias)]
    made = StateFunction.apply(terms, readers, home, *(term.x for term in terms), *weights)  # type: ignore[no-untyped-call]
    return list(made)


class StateFunction(torch.autograd.Function):
    """Takes the terms' pictures, then weight and bias of each norm among them."""

    @staticmethod
    def forward(ctx: Any, terms: list[Term], readers: list[bool], home: Place | None, *tensors: Tensor) -> Any:
        ctx.set_materialize_grads(False)
        made = [prepared(term, x) for term, x in zip(terms, tensors, strict=False)]
        size = output_size(terms[0])
        raw, positive = places(tensors[0], size, readers, home)
        ctx.single = len(readers) == len(made) == 1 and made[0].norm is not None and made[0].keep is None
        signs = None if ctx.single or positive is None else bits_for(positive)
        launch(made, tensors[: len(terms)], raw, positive, signs, size)
        ctx.made, ctx.readers, ctx.signs, ctx.size = made, readers, signs, size
        ctx.weights = tensors[len(terms) :]
        return tuple(picture(positive if reader else raw, size) for reader in readers)

    @staticmethod
    def backward(ctx: Any, *arrived: Tensor | None) -> Any:
        gradients = [(as_rows(one), cut) for one, cut in zip(arrived, ctx.readers, strict=True) if one is not None]
        if ctx.single:
            pictures, weights = through_norm(*gradients[0], ctx.made[0], ctx.size)
        else:
            pictures, weights = spread(*merge(gradients, ctx.signs, ctx.made), ctx.made, ctx.size)
        weights = [made.to(like.dtype) for made, like in zip(weights, ctx.weights, strict=True)]
        ctx.made = ctx.signs = ctx.weights = None
        return None, None, None, *pictures, *weights


def picture(rows: Tensor | None, size: tuple[int, int, int]) -> Tensor:
    """Rows, perhaps part of a larger tensor, as pictures; a tensor of its own each time."""
    assert rows is not None
    return rows.view(*size, rows.shape[1]).permute(0, 3, 1, 2)


def prepared(term: Term, x: Tensor) -> Made:
    rows = norm = chosen = None
    if term.layer is not None:
        rows = rows_of(x)
        norm = norm_of(rows, term.layer)
    elif term.pool is not None and not term.pool.average:
        shape = (x.shape[0], *term.pool.output(*x.shape[2:]), x.shape[1])
        chosen = torch.empty(shape, dtype=torch.uint8, device=x.device)
    return Made(rows, norm, term.pool, chosen, term.keep, tuple(x.shape))


def places(
    like: Tensor, size: tuple[int, int, int], readers: list[bool], home: Place | None
) -> tuple[Tensor | None, Tensor | None]:
    """Rows for the sum, and for the sum behind a ReLU, as far as they are read."""
    shape = (size[0] * size[1] * size[2], like.shape[1])
    raw = None if all(readers) else like.new_empty(shape)
    if not any(readers):
        return raw, None
    return raw, like.new_empty(shape) if home is None else home.rows


def bits_for(rows: Tensor) -> Tensor:
    """One for every number."""
    return torch.empty((len(rows), blocks(rows.shape[1], 8)), dtype=torch.uint8, device=rows.device)


def full_size(made: list[Made]) -> tuple[int, ...]:
    """Of what the pools see; those of one state see the same."""
    sizes = [one.shape[2:] for one in made if one.pool is not None]
    return sizes[0] if sizes else made[0].shape[2:]


@dataclass(frozen=True)
class Cut:
    """How a state is cut up: into tiles of pixels in pictures of a size."""

    tiles: int
    size: tuple[int, int]
    tall: int
    wide: int
    columns: int
    warps: int

    @staticmethod
    def of(size: tuple[int, int, int], channels: int, neighbours: bool) -> Cut:
        """Without neighbours all pixels count as one row."""
        count, height, width = size if neighbours else (1, 1, size[0] * size[1] * size[2])
        tall, wide, columns, warps = NEIGHBOURS if neighbours else (1, *tile(channels))
        return Cut(count * blocks(height, tall) * blocks(width, wide), (height, width), tall, wide, columns, warps)


def launch(
    made: list[Made], pictures: tuple[Tensor, ...], raw: Tensor | None, positive: Tensor | None, signs: Tensor | None,
    size: tuple[int, int, int],
) -> None:  # fmt: skip
    some = positive if raw is None else raw
    assert some is not None
    rows, channels = some.shape
    pictures = tuple(x.contiguous(memory_format=torch.channels_last) for x in pictures)
    told = [described(one, x) for one, x in zip(made, pictures, strict=True)]
    first, second = told if len(told) == 2 else (told[0], (told[0][0], (0, 0, False)))
    stride = max(term.pool.stride if term.pool else 1 for term in made)
    cut = Cut.of(size, channels, neighbours=any(term.pool for term in made))
    terms_kernels.sum_kernel[(cut.tiles, blocks(channels, cut.columns))](
        *(*first[0], *second[0], *(some if one is None else one for one in (raw, positive, signs))),
        *(some.stride(0) if positive is None else positive.stride(0), rows, channels, *full_size(made), *cut.size),
        *(size[1] * size[2], *first[1], *second[1], stride, raw is not None, positive is not None, signs is not None),
        *(cut.tall, cut.wide, cut.columns),
        num_warps=cut.warps,
    )


def described(made: Made, x: Tensor) -> tuple[tuple[Any, ...], tuple[int, int, bool]]:
    """For the kernel: where a term's numbers lie, and of what kind it is."""
    scale, shift = (x, x) if made.norm is None else (made.norm.scale, made.norm.shift)
    keep, chosen = x if made.keep is None else made.keep, x if made.chosen is None else made.chosen
    kept = made.keep is not None
    if made.pool is None:
        return (x, scale, shift, keep, chosen, 0, 0), (1 if made.norm is None else 2, 0, kept)
    top, left = made.pool.before(*made.shape[2:])
    return (x, scale, shift, keep, chosen, top, left), (4 if made.pool.average else 3, made.pool.size, kept)


def alone(gradients: list[tuple[Tensor, bool]]) -> bool:
    """Whether there is one reader, and what it sends is the whole of its tensor."""
    return len(gradients) == 1 and gradients[0][0].is_contiguous()


def merge(gradients: list[tuple[Tensor, bool]], signs: Tensor | None, made: list[Made]) -> tuple[Tensor, Sums | None]:
    """What arrives at the state, and its sums for the first norm that gets it as it is."""
    if alone(gradients) and not gradients[0][1]:
        return gradients[0][0], None
    like = gradients[0][0]
    rows, channels = like.shape
    first = next((one for one in made if one.norm is not None and one.keep is None), None)
    x, mean, inverse = (like,) * 3 if first is None else (first.x, first.norm.mean, first.norm.inverse)  # type: ignore[union-attr]
    change = like.new_empty((rows, channels))
    cut = gather_for(like, len(gradients) + (first is not None))
    columns, parts = cut.programs(like)
    table = torch.empty((2, parts if first else 0, channels), dtype=torch.float32, device=like.device)
    sums = torch.empty((2, channels), dtype=torch.float32, device=like.device)
    padded = [one for one, _ in gradients] + [like] * (MOST_READERS - len(gradients))
    masked = sum(positive << index for index, (_, positive) in enumerate(gradients))
    terms_kernels.merge_kernel[(columns, parts)](
        *(*padded, *(one.stride(0) for one in padded), like if signs is None else signs),
        *(x, mean, inverse, change, table, sums, tickets(like)),
        *(rows, channels, len(gradients), masked, first is not None, cut.height, cut.height, cut.width),
        **cut.options,
    )
    return change, None if first is None else Sums(sums[0], sums[1])


Results = tuple[list[Tensor], list[Tensor]]  # for the terms, and for the weights and biases of the norms among them


def through_norm(gradient: Tensor, cut: bool, made: Made, size: tuple[int, int, int]) -> Results:
    """Of a norm with one reader: its kernels see again where its line was above 0, and nothing needs to be stored."""
    assert made.x is not None
    assert made.norm is not None
    gradient = gradient.contiguous()
    sums = gradient_sums(gradient, made.x, made.norm, relu=cut)
    at = input_gradient(gradient, made.x, made.norm, sums, relu=cut)
    return [picture(at, size)], [sums.product, sums.total]


def spread(change: Tensor, sums: Sums | None, made: list[Made], size: tuple[int, int, int]) -> Results:
    """`sums`, if any, are those of the first norm without a factor."""
    pictures, weights = [], []
    for one in made:
        arrives = change if one.keep is None else kept(change, one.keep)
        if one.norm is not None and one.x is not None:
            own = gradient_sums(arrives, one.x, one.norm, relu=False) if sums is None or one.keep is not None else sums
            sums = None if own is sums else sums
            pictures.append(picture(input_gradient(arrives, one.x, one.norm, own), size))
            weights += [own.product, own.total]
        elif one.pool is not None:
            pictures.append(pooling.backward(arrives, one.chosen, one.shape, one.pool))
        else:
            pictures.append(picture(arrives, size))
    return pictures, weights


def kept(change: Tensor, keep: Tensor) -> Tensor:
    return (change.view(len(keep), -1) * keep[:, None].to(change.dtype)).view(change.shape)
