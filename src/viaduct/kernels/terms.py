"""A state of a cell as a single operation: the sum of up to two terms, given to each of its readers.

Every reader gets a tensor of its own over the same memory, so that their gradients arrive separately and are added up
by the kernel that needs the sum, not by passes of autograd.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from viaduct.kernels import pooling, terms_kernels
from viaduct.kernels.norm import Norm, Sums, compute_norm, gradient_sums, input_gradient, rows_of
from viaduct.kernels.pooling import Pool, as_rows
from viaduct.kernels.sizes import area_for, blocks, gather_for, tickets, tile_for

MOST_READERS = 4


@dataclass(frozen=True)
class Term:
    """An image: behind a norm, behind a pool, or as it is; `keep`: times a factor for each example."""

    x: Tensor
    layer: nn.BatchNorm2d | None = None
    pool: Pool | None = None
    keep: Tensor | None = None


@dataclass(frozen=True)
class Made:
    """Values of a term that the backward pass needs."""

    x: Tensor | None  # rows, of a norm
    norm: Norm | None
    pool: Pool | None
    chosen: Tensor | None  # of a max pool
    keep: Tensor | None
    shape: tuple[int, ...]


class Home:
    """A tensor in which states of equal size lie side by side."""

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

    def as_images(self) -> Tensor:
        """Return all states side by side."""
        return as_images(self.rows, self.size)


@dataclass(frozen=True)
class Place:
    """Columns of a tensor that is written in parts; hidden from autograd, which does not see the writes."""

    rows: Tensor


def output_size(term: Term) -> tuple[int, int, int]:
    """Return images, height and width of a term's value."""
    count, _, *sizes = term.x.shape
    height, width = sizes if term.pool is None else term.pool.output_size(*sizes)
    return count, height, width


def state(terms: list[Term], readers: list[bool], home: Place | None = None) -> list[Tensor]:
    """Return the sum of the terms for each reader; those that are True read it through a ReLU.

    `home`: where to write the latter.
    """
    layers = [term.layer for term in terms if term.layer is not None]
    weights = [tensor for layer in layers for tensor in (layer.weight, layer.bias)]
    made = StateFunction.apply(terms, readers, home, *(term.x for term in terms), *weights)  # type: ignore[no-untyped-call]
    return list(made)


class StateFunction(torch.autograd.Function):
    """The sum of terms. Its inputs are the terms' images, then weight and bias of each norm among them."""

    @staticmethod
    def forward(ctx: Any, terms: list[Term], readers: list[bool], home: Place | None, *tensors: Tensor) -> Any:
        ctx.set_materialize_grads(False)
        made = [prepare_term(term, x) for term, x in zip(terms, tensors, strict=False)]
        size = output_size(terms[0])
        raw, positive = allocate_outputs(tensors[0], size, readers, home)
        ctx.single = len(readers) == len(made) == 1 and made[0].norm is not None and made[0].keep is None
        signs = None if ctx.single or positive is None else allocate_signs(positive)
        launch(made, tensors[: len(terms)], raw, positive, signs, size)
        ctx.made, ctx.readers, ctx.signs, ctx.size = made, readers, signs, size
        ctx.weights = tensors[len(terms) :]
        return tuple(as_images(positive if reader else raw, size) for reader in readers)

    @staticmethod
    def backward(ctx: Any, *arrived: Tensor | None) -> Any:
        gradients = [
            (as_rows(given), cut) for given, cut in zip(arrived, ctx.readers, strict=True) if given is not None
        ]
        if ctx.single:
            images, weights = backpropagate_norm(*gradients[0], ctx.made[0], ctx.size)
        else:
            images, weights = backpropagate_terms(*merge(gradients, ctx.signs, ctx.made), ctx.made, ctx.size)
        weights = [made.to(like.dtype) for made, like in zip(weights, ctx.weights, strict=True)]
        ctx.made = ctx.signs = ctx.weights = None
        return None, None, None, *images, *weights


def as_images(rows: Tensor | None, size: tuple[int, int, int]) -> Tensor:
    """Return rows, perhaps part of a larger tensor, as images; a new tensor object each time."""
    assert rows is not None
    return rows.view(*size, rows.shape[1]).permute(0, 3, 1, 2)


def prepare_term(term: Term, x: Tensor) -> Made:
    rows = norm = chosen = None
    if term.layer is not None:
        rows = rows_of(x)
        norm = compute_norm(rows, term.layer)
    elif term.pool is not None and not term.pool.average:
        shape = (x.shape[0], *term.pool.output_size(*x.shape[2:]), x.shape[1])
        chosen = torch.empty(shape, dtype=torch.uint8, device=x.device)
    return Made(rows, norm, term.pool, chosen, term.keep, tuple(x.shape))


def allocate_outputs(
    like: Tensor, size: tuple[int, int, int], readers: list[bool], home: Place | None
) -> tuple[Tensor | None, Tensor | None]:
    """Return rows for the sum, and for the sum behind a ReLU, as far as they are read."""
    shape = (size[0] * size[1] * size[2], like.shape[1])
    raw = None if all(readers) else like.new_empty(shape)
    if not any(readers):
        return raw, None
    return raw, like.new_empty(shape) if home is None else home.rows


def allocate_signs(rows: Tensor) -> Tensor:
    """Return a tensor with a bit for every number."""
    return torch.empty((len(rows), blocks(rows.shape[1], 8)), dtype=torch.uint8, device=rows.device)


def find_input_size(made: list[Made]) -> tuple[int, ...]:
    """Return height and width of the pools' input, which is the same for all pools of a state."""
    sizes = [term.shape[2:] for term in made if term.pool is not None]
    return sizes[0] if sizes else made[0].shape[2:]


@dataclass(frozen=True)
class Cut:
    """How a state is cut up: into tiles of pixels of images of a size."""

    tiles: int
    size: tuple[int, int]
    tall: int
    wide: int
    columns: int
    warps: int

    @staticmethod
    def of(size: tuple[int, int, int], channels: int, neighbours: bool, dtype: torch.dtype) -> Cut:
        """Without neighbours all pixels form a single row."""
        if neighbours:
            area = area_for("sum_terms_pooled", (*size, channels), dtype)
            tiles = area.count_tiles(*size)
            return Cut(tiles, (size[1], size[2]), area.height, area.width, area.columns, area.warps)
        rows = size[0] * size[1] * size[2]
        tile = tile_for("sum_terms", rows, channels, dtype)
        return Cut(blocks(rows, tile.rows), (1, rows), 1, tile.rows, tile.columns, tile.warps)


def launch(
    made: list[Made], images: tuple[Tensor, ...], raw: Tensor | None, positive: Tensor | None, signs: Tensor | None,
    size: tuple[int, int, int],
) -> None:  # fmt: skip
    some = positive if raw is None else raw
    assert some is not None
    rows, channels = some.shape
    images = tuple(x.contiguous(memory_format=torch.channels_last) for x in images)
    arguments = [describe_term(term, x) for term, x in zip(made, images, strict=True)]
    first, second = arguments if len(arguments) == 2 else (arguments[0], (arguments[0][0], (0, 0, False)))
    stride = max(term.pool.stride if term.pool else 1 for term in made)
    cut = Cut.of(size, channels, any(term.pool for term in made), some.dtype)
    terms_kernels.sum_kernel[(cut.tiles, blocks(channels, cut.columns))](
        *(*first[0], *second[0], *(some if out is None else out for out in (raw, positive, signs))),
        *(
            some.stride(0) if positive is None else positive.stride(0),
            rows,
            channels,
            *find_input_size(made),
            *cut.size,
        ),
        *(size[1] * size[2], *first[1], *second[1], stride, raw is not None, positive is not None, signs is not None),
        *(cut.tall, cut.wide, cut.columns),
        num_warps=cut.warps,
    )


def describe_term(made: Made, x: Tensor) -> tuple[tuple[Any, ...], tuple[int, int, bool]]:
    """Return the kernel's arguments for a term: its tensors, and its kind."""
    scale, shift = (x, x) if made.norm is None else (made.norm.scale, made.norm.shift)
    keep, chosen = x if made.keep is None else made.keep, x if made.chosen is None else made.chosen
    kept = made.keep is not None
    if made.pool is None:
        return (x, scale, shift, keep, chosen, 0, 0), (1 if made.norm is None else 2, 0, kept)
    top, left = made.pool.padding_before(*made.shape[2:])
    return (x, scale, shift, keep, chosen, top, left), (4 if made.pool.average else 3, made.pool.size, kept)


def has_single_reader(gradients: list[tuple[Tensor, bool]]) -> bool:
    """Return True if there is a single reader whose gradient is a whole tensor."""
    return len(gradients) == 1 and gradients[0][0].is_contiguous()


def merge(gradients: list[tuple[Tensor, bool]], signs: Tensor | None, made: list[Made]) -> tuple[Tensor, Sums | None]:
    """Return the gradient of the state, and its sums for the first norm that takes it without a factor."""
    if has_single_reader(gradients) and not gradients[0][1]:
        return gradients[0][0], None
    like = gradients[0][0]
    rows, channels = like.shape
    first = next((term for term in made if term.norm is not None and term.keep is None), None)
    x, mean, inverse = (like,) * 3 if first is None else (first.x, first.norm.mean, first.norm.inverse)  # type: ignore[union-attr]
    change = like.new_empty((rows, channels))
    cut = gather_for("merge_gradients", like, len(gradients) + (first is not None))
    columns, parts = cut.programs(like)
    table = torch.empty((2, parts if first else 0, channels), dtype=torch.float32, device=like.device)
    sums = torch.empty((2, channels), dtype=torch.float32, device=like.device)
    padded = [gradient for gradient, _ in gradients] + [like] * (MOST_READERS - len(gradients))
    masked = sum(positive << index for index, (_, positive) in enumerate(gradients))
    terms_kernels.merge_kernel[(columns, parts)](
        *(*padded, *(gradient.stride(0) for gradient in padded), like if signs is None else signs),
        *(x, mean, inverse, change, table, sums, tickets(like)),
        *(rows, channels, len(gradients), masked, first is not None, cut.height, cut.height, cut.width),
        **cut.options,
    )
    return change, None if first is None else Sums(sums[0], sums[1])


Results = tuple[list[Tensor], list[Tensor]]  # for the terms, and for the weights and biases of the norms among them


def backpropagate_norm(gradient: Tensor, cut: bool, made: Made, size: tuple[int, int, int]) -> Results:
    """Return the gradients of a norm with a single reader: its kernels recompute where the ReLU was above 0."""
    assert made.x is not None
    assert made.norm is not None
    gradient = gradient.contiguous()
    sums = gradient_sums(gradient, made.x, made.norm, relu=cut)
    at = input_gradient(gradient, made.x, made.norm, sums, relu=cut)
    return [as_images(at, size)], [sums.product, sums.total]


def backpropagate_terms(change: Tensor, sums: Sums | None, made: list[Made], size: tuple[int, int, int]) -> Results:
    """Return the gradients of all terms; `sums`, if any, are those of the first norm without a factor."""
    images, weights = [], []
    for term in made:
        arrives = change if term.keep is None else apply_keep(change, term.keep)
        if term.norm is not None and term.x is not None:
            own = (
                gradient_sums(arrives, term.x, term.norm, relu=False) if sums is None or term.keep is not None else sums
            )
            sums = None if own is sums else sums
            images.append(as_images(input_gradient(arrives, term.x, term.norm, own), size))
            weights += [own.product, own.total]
        elif term.pool is not None:
            images.append(pooling.backward(arrives, term.chosen, term.shape, term.pool))
        else:
            images.append(as_images(arrives, size))
    return images, weights


def apply_keep(change: Tensor, keep: Tensor) -> Tensor:
    return (change.view(len(keep), -1) * keep[:, None].to(change.dtype)).view(change.shape)
