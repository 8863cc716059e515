"""State of an AmoebaNet cell as a single operation: the sum of one or two terms, returned once for each of its readers.

A reader is an operation that takes the state as its input, directly or through a ReLU. Each reader gets a tensor of its
own over the same memory, so that autograd passes the readers' gradients separately, and one kernel adds them. Rows are
channels_last images as [pixels, channels].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from viaduct.kernels import pooling, terms_kernels
from viaduct.kernels.norm import Norm, Sums, compute_input_gradient, compute_norm, sum_gradient, view_as_rows
from viaduct.kernels.pooling import Pool, convert_to_rows
from viaduct.kernels.sizes import count_blocks, find_area, find_reduction_sizes, find_tile, get_tickets

MAX_READERS = 4  # gradients that `merge_kernel` has parameters for


@dataclass(frozen=True)
class Term:
    """Summand of a state: images, optionally behind a norm or a pool."""

    x: Tensor
    layer: nn.BatchNorm2d | None = None
    pool: Pool | None = None
    factor: Tensor | None = None  # drop path's factor of each example


@dataclass(frozen=True)
class SavedTerm:
    """What the kernels and the backward pass need of a term."""

    shape: tuple[int, ...]  # of the term's images
    x: Tensor | None = None  # the norm's input, as rows
    norm: Norm | None = None
    pool: Pool | None = None
    argmax: Tensor | None = None  # of a max pool
    factor: Tensor | None = None


class OutputBuffer:
    """Tensor that holds states of equal size side by side; allocated with the first of them."""

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.rows: Tensor | None = None
        self.size = (0, 0, 0)

    def make_slice(self, index: int, terms: list[Term]) -> BufferSlice:
        """Return the columns of the state with this index in the output."""
        x = terms[0].x
        channels = x.shape[1]
        if self.rows is None:
            self.size = find_output_size(terms[0])
            self.rows = x.new_empty((self.size[0] * self.size[1] * self.size[2], channels * self.parts))
        return BufferSlice(self.rows[:, index * channels : (index + 1) * channels])

    def view_as_images(self) -> Tensor:
        """Return all states, concatenated along the channels, as images."""
        return view_as_images(self.rows, self.size)


@dataclass(frozen=True)
class BufferSlice:
    """Columns of an output buffer; a dataclass, so that autograd does not treat the tensor as an input."""

    rows: Tensor


def find_output_size(term: Term) -> tuple[int, int, int]:
    """Return number of images, height and width of a term's value."""
    count, _, *sizes = term.x.shape
    height, width = sizes if term.pool is None else term.pool.compute_output_size(*sizes)
    return count, height, width


def sum_terms(terms: list[Term], readers: list[bool], buffer: BufferSlice | None = None) -> list[Tensor]:
    """Return the sum of the terms once for each reader; `readers` has True for those that read it through a ReLU.

    If there is a `buffer`, the sum behind the ReLU is written to it.
    """
    layers = [term.layer for term in terms if term.layer is not None]
    weights = [tensor for layer in layers for tensor in (layer.weight, layer.bias)]
    outputs = StateFunction.apply(terms, readers, buffer, *(term.x for term in terms), *weights)  # type: ignore[no-untyped-call]
    return list(outputs)


class StateFunction(torch.autograd.Function):
    """Sum of terms. Its tensor inputs are the terms' images, then weight and bias of each norm."""

    @staticmethod
    def forward(ctx: Any, terms: list[Term], readers: list[bool], buffer: BufferSlice | None, *tensors: Tensor) -> Any:
        ctx.set_materialize_grads(False)
        saved = [prepare_term(term, x) for term, x in zip(terms, tensors, strict=False)]
        size = find_output_size(terms[0])
        raw, positive = allocate_outputs(tensors[0], size, readers, buffer)
        # A single norm with one reader needs no signs: its backward kernels recompute the ReLU's mask.
        ctx.is_single_norm = len(readers) == len(saved) == 1 and saved[0].norm is not None and saved[0].factor is None
        signs = None if ctx.is_single_norm or positive is None else allocate_signs(positive)
        launch_sum(saved, tensors[: len(terms)], raw, positive, signs, size)
        ctx.terms, ctx.readers, ctx.signs, ctx.size = saved, readers, signs, size
        ctx.weights = tensors[len(terms) :]
        return tuple(view_as_images(positive if reader else raw, size) for reader in readers)

    @staticmethod
    def backward(ctx: Any, *reader_gradients: Tensor | None) -> Any:
        pairs = zip(reader_gradients, ctx.readers, strict=True)
        gradients = [(convert_to_rows(gradient), relu) for gradient, relu in pairs if gradient is not None]
        if ctx.is_single_norm:
            images, weights = backpropagate_norm(*gradients[0], ctx.terms[0], ctx.size)
        else:
            merged, sums = merge_gradients(gradients, ctx.signs, ctx.terms)
            images, weights = backpropagate_terms(merged, sums, ctx.terms, ctx.size)
        weights = [gradient.to(like.dtype) for gradient, like in zip(weights, ctx.weights, strict=True)]
        ctx.terms = ctx.signs = ctx.weights = None
        return None, None, None, *images, *weights


def view_as_images(rows: Tensor | None, size: tuple[int, int, int]) -> Tensor:
    """Return rows, which may be columns of a larger tensor, as images."""
    assert rows is not None
    return rows.view(*size, rows.shape[1]).permute(0, 3, 1, 2)


def prepare_term(term: Term, x: Tensor) -> SavedTerm:
    """Compute a term's norm, or allocate the argmax of its max pool."""
    rows = norm = argmax = None
    if term.layer is not None:
        rows = view_as_rows(x)
        norm = compute_norm(rows, term.layer)
    elif term.pool is not None and not term.pool.average:
        shape = (x.shape[0], *term.pool.compute_output_size(*x.shape[2:]), x.shape[1])
        argmax = torch.empty(shape, dtype=torch.uint8, device=x.device)
    return SavedTerm(tuple(x.shape), rows, norm, term.pool, argmax, term.factor)


def allocate_outputs(
    like: Tensor, size: tuple[int, int, int], readers: list[bool], buffer: BufferSlice | None
) -> tuple[Tensor | None, Tensor | None]:
    """Return empty rows for the sum and for the sum behind a ReLU; None for one that no reader needs."""
    shape = (size[0] * size[1] * size[2], like.shape[1])
    raw = None if all(readers) else like.new_empty(shape)
    if not any(readers):
        return raw, None
    return raw, like.new_empty(shape) if buffer is None else buffer.rows


def allocate_signs(rows: Tensor) -> Tensor:
    """Return an empty tensor with one bit for every element."""
    return torch.empty((len(rows), count_blocks(rows.shape[1], 8)), dtype=torch.uint8, device=rows.device)


def find_input_size(terms: list[SavedTerm]) -> tuple[int, ...]:
    """Return height and width of the input of a state's pools; they are the same for all of them."""
    sizes = [term.shape[2:] for term in terms if term.pool is not None]
    return sizes[0] if sizes else terms[0].shape[2:]


@dataclass(frozen=True)
class Tiling:
    """Division of a state into tiles of pixels, one for each program."""

    tiles: int
    size: tuple[int, int]  # height and width of the state
    tile_height: int
    tile_width: int
    columns: int  # channels for each program
    warps: int

    @staticmethod
    def choose(size: tuple[int, int, int], channels: int, has_pool: bool, dtype: torch.dtype) -> Tiling:
        """Return the tuned tiling; without a pool all pixels form a single row."""
        if has_pool:
            area = find_area("sum_terms_pooled", (*size, channels), dtype)
            tiles = area.count_tiles(*size)
            return Tiling(tiles, (size[1], size[2]), area.height, area.width, area.columns, area.warps)
        rows = size[0] * size[1] * size[2]
        tile = find_tile("sum_terms", rows, channels, dtype)
        return Tiling(count_blocks(rows, tile.rows), (1, rows), 1, tile.rows, tile.columns, tile.warps)


def launch_sum(
    terms: list[SavedTerm], images: tuple[Tensor, ...], raw: Tensor | None, positive: Tensor | None,
    signs: Tensor | None, size: tuple[int, int, int],
) -> None:  # fmt: skip
    """Launch the kernel that writes the sum of the terms to `raw`, its ReLU to `positive`, and its signs."""
    output = positive if raw is None else raw
    assert output is not None
    rows, channels = output.shape
    images = tuple(x.contiguous(memory_format=torch.channels_last) for x in images)
    arguments = [describe_term(term, x) for term, x in zip(terms, images, strict=True)]
    # Without a second term (kind 0) the kernel gets the tensors of the first, and does not read them.
    (first_tensors, first_kind), *others = arguments
    second_tensors, second_kind = others[0] if others else (first_tensors, (0, 0, False))
    stride = max(term.pool.stride if term.pool else 1 for term in terms)
    tiling = Tiling.choose(size, channels, any(term.pool for term in terms), output.dtype)
    terms_kernels.sum_kernel[(tiling.tiles, count_blocks(channels, tiling.columns))](
        *(*first_tensors, *second_tensors, *(output if out is None else out for out in (raw, positive, signs))),
        *((output if positive is None else positive).stride(0), rows, channels, *find_input_size(terms), *tiling.size),
        *(size[1] * size[2], *first_kind, *second_kind, stride),
        *(raw is not None, positive is not None, signs is not None),
        *(tiling.tile_height, tiling.tile_width, tiling.columns),
        num_warps=tiling.warps,
    )


def describe_term(term: SavedTerm, x: Tensor) -> tuple[tuple[Any, ...], tuple[int, int, bool]]:
    """Return the kernel's arguments for a term: (tensors, padding), and (kind, pool size, has a factor).

    Kinds are those of terms_kernels.py: 1 images, 2 a norm, 3 a max pool, 4 an average pool; 0 is no term. Tensors that
    the kind does not need are replaced by others, which the kernel does not read.
    """
    scale, shift = (x, x) if term.norm is None else (term.norm.scale, term.norm.shift)
    factor, argmax = x if term.factor is None else term.factor, x if term.argmax is None else term.argmax
    has_factor = term.factor is not None
    if term.pool is None:
        return (x, scale, shift, factor, argmax, 0, 0), (1 if term.norm is None else 2, 0, has_factor)
    top, left = term.pool.compute_padding_before(*term.shape[2:])
    return (x, scale, shift, factor, argmax, top, left), (4 if term.pool.average else 3, term.pool.size, has_factor)


def merge_gradients(
    gradients: list[tuple[Tensor, bool]], signs: Tensor | None, terms: list[SavedTerm]
) -> tuple[Tensor, Sums | None]:
    """Return the sum of the readers' gradients, and its sums for the first norm without drop path's factor, or None.

    Each gradient is paired with True if its reader has a ReLU; it then counts only where `signs` has a 1.
    """
    like, has_relu = gradients[0]
    if len(gradients) == 1 and like.is_contiguous() and not has_relu:
        return like, None
    rows, channels = like.shape
    first = next((term for term in terms if term.norm is not None and term.factor is None), None)
    x, mean, inverse_deviation = like, like, like  # the kernel does not read them without a norm
    if first is not None:
        x, mean, inverse_deviation = first.x, first.norm.mean, first.norm.inverse_deviation  # type: ignore[assignment,union-attr]
    total = like.new_empty((rows, channels))
    sizes = find_reduction_sizes("merge_gradients", like, len(gradients) + (first is not None))
    columns, parts = sizes.count_programs(like)
    table = torch.empty((2, parts if first else 0, channels), dtype=torch.float32, device=like.device)
    sums = torch.empty((2, channels), dtype=torch.float32, device=like.device)
    padded = [gradient for gradient, _ in gradients] + [like] * (MAX_READERS - len(gradients))
    masked = sum(relu << index for index, (_, relu) in enumerate(gradients))  # one bit for each gradient
    terms_kernels.merge_kernel[(columns, parts)](
        *(*padded, *(gradient.stride(0) for gradient in padded), like if signs is None else signs),
        *(x, mean, inverse_deviation, total, table, sums, get_tickets(like)),
        *(rows, channels, len(gradients), masked, first is not None, sizes.height, sizes.height, sizes.width),
        **sizes.options,
    )
    return total, None if first is None else Sums(sums[0], sums[1])


Results = tuple[list[Tensor], list[Tensor]]  # gradients w.r.t. the terms, and w.r.t. weight and bias of each norm


def backpropagate_norm(gradient: Tensor, relu: bool, term: SavedTerm, size: tuple[int, int, int]) -> Results:
    """Return the gradients of a norm with a single reader; its kernels recompute the ReLU's mask."""
    assert term.x is not None
    assert term.norm is not None
    gradient = gradient.contiguous()
    sums = sum_gradient(gradient, term.x, term.norm, relu=relu)
    x_gradient = compute_input_gradient(gradient, term.x, term.norm, sums, relu=relu)
    return [view_as_images(x_gradient, size)], [sums.product, sums.total]


def backpropagate_terms(
    gradient: Tensor, sums: Sums | None, terms: list[SavedTerm], size: tuple[int, int, int]
) -> Results:
    """Return the gradients of all terms; `sums` are those for the first norm without a factor, or None."""
    images, weights = [], []
    for term in terms:
        term_gradient = gradient if term.factor is None else apply_factor(gradient, term.factor)
        if term.norm is not None and term.x is not None:
            if sums is not None and term.factor is None:
                term_sums, sums = sums, None
            else:
                term_sums = sum_gradient(term_gradient, term.x, term.norm, relu=False)
            images.append(view_as_images(compute_input_gradient(term_gradient, term.x, term.norm, term_sums), size))
            weights += [term_sums.product, term_sums.total]
        elif term.pool is not None:
            images.append(pooling.backward(term_gradient, term.argmax, term.shape, term.pool))
        else:
            images.append(view_as_images(term_gradient, size))
    return images, weights


def apply_factor(gradient: Tensor, factor: Tensor) -> Tensor:
    """Multiply the gradient by drop path's factor of each example."""
    return (gradient.view(len(factor), -1) * factor[:, None].to(gradient.dtype)).view(gradient.shape)
