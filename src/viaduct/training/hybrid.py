"""A classifier of very many classes, split over the ranks: each has some of its rows, all have the rest of the network.

    shards = Shards(classes, rank, ranks, counts)
    split(model, "head", shards)             in place; names stay, the layer keeps this rank's rows only
    logits = model(images)                 images of all ranks x own classes
    SplitLoss(shards, smoothing)(logits, labels)

In the forward pass every rank gets the features of the whole batch (all-gather) and computes the logits of its own
classes for all of them. The softmax needs three sums over the ranks for each image, and their largest logit. In the
backward pass the features' gradients are added up and each rank gets those of its own images (reduce-scatter). The
gradients of a rank's rows are complete: no weight or gradient of the classifier is sent in a step.

torch's `loss_parallel` (DTensor) has no label smoothing and no mixed labels, so the loss is written here, on
torch.distributed's collectives; the rows are plain tensors, which fused optimizers take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, distributed, nn

from viaduct.torch_compat import clip_gradients, disable_dynamo
from viaduct.training.messages import sendable
from viaduct.training.metrics import FIRST, Judged

PIECE_BYTES = 64 << 20  # of a classifier, sent at a time
Key = tuple[Any, ...]


def collective(*names: str) -> Callable[..., Any]:
    """Return torch's function under its new or old name: torch 2.13 has renamed these, and warns of the old ones."""
    found: Callable[..., Any] = next(getattr(distributed, name) for name in names if hasattr(distributed, name))
    return found


all_gather = collective("all_gather_single", "all_gather_into_tensor")
reduce_scatter = collective("reduce_scatter_single", "reduce_scatter_tensor")


class Gather(torch.autograd.Function):
    """All-gather of rows, equally many on each rank; backward, the gradient of this rank's rows, summed over the ranks.

    The loss is already the mean over all images. DistributedDataParallel divides its sums by the number of ranks, as if
    each rank had a loss of its own; so the gradient is multiplied by that number here.
    """

    @staticmethod
    def forward(ctx: Any, own: Tensor, ranks: int) -> Tensor:
        ctx.ranks = ranks
        every = own.new_empty(len(own) * ranks, *own.shape[1:])
        all_gather(every, own.contiguous())
        return every

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        gradient = gradients[0].to(torch.promote_types(gradients[0].dtype, torch.float32)).contiguous()
        own = gradient.new_empty(len(gradient) // ctx.ranks, *gradient.shape[1:])
        reduce_scatter(own, gradient)
        return own.mul_(ctx.ranks).to(gradients[0].dtype), None


@dataclass(frozen=True)
class Shards:
    """Classes of each rank. If they do not divide evenly, the first ranks have one class more."""

    classes: int
    rank: int
    ranks: int
    counts: tuple[int, ...]  # images of each rank in a part of a training step

    def bounds(self, rank: int) -> tuple[int, int]:
        """Return the first class of a rank and the one after its last."""
        each, more = divmod(self.classes, self.ranks)
        first = rank * each + min(rank, more)
        return first, first + each + (rank < more)

    @property
    def own(self) -> slice:
        """Slice of this rank's classes."""
        return slice(*self.bounds(self.rank))

    @property
    def rows(self) -> int:
        """Number of this rank's classes."""
        first, end = self.bounds(self.rank)
        return end - first

    def counts_of(self, own: Tensor, training: bool) -> tuple[int, ...]:
        """Return how many images each rank has in this pass; in evaluation all have equally many."""
        return self.counts if training else (len(own),) * self.ranks

    def gather(self, own: Tensor, counts: tuple[int, ...]) -> Tensor:
        """Return the rows of all ranks, in the order of the ranks."""
        most = max(counts)
        lacking = most - len(own)
        padded = F.pad(own, (0, 0) * (own.ndim - 1) + (0, lacking)) if lacking else own
        every: Tensor = Gather.apply(padded, self.ranks)  # type: ignore[no-untyped-call]
        if min(counts) == most:
            return every
        return torch.cat([every[rank * most : rank * most + count] for rank, count in enumerate(counts)])

    def mine(self, counts: tuple[int, ...]) -> slice:
        """Return the slice of this rank's images among those of all ranks."""
        first = sum(counts[: self.rank])
        return slice(first, first + counts[self.rank])


class SplitLinear(nn.Linear):
    """Dense layer with this rank's rows; it returns logits for the images of all ranks."""

    shards: Shards

    @disable_dynamo  # a compiled network calls it between its parts
    def forward(self, input: Tensor) -> Tensor:
        every = self.shards.gather(input, self.shards.counts_of(input, self.training))
        return F.linear(every, self.weight, self.bias)


@torch.no_grad()
def split(model: nn.Module, name: str, shards: Shards) -> None:
    """Keep this rank's rows of that layer only, in place."""
    layer: Any = model.get_submodule(name)
    layer.weight = nn.Parameter(layer.weight[shards.own].clone())
    if layer.bias is not None:
        layer.bias = nn.Parameter(layer.bias[shards.own].clone())
    layer.shards = shards
    layer.__class__ = SplitLinear


class Mixed(NamedTuple):
    """Mixup's labels without a column for every class: two classes of each image, and the weight of each."""

    labels: Tensor  # N,2
    weights: Tensor  # N,2

    def chunk(self, parts: int) -> list[Mixed]:
        return [Mixed(*both) for both in zip(self.labels.chunk(parts), self.weights.chunk(parts), strict=True)]


def mixed_labels(labels: Tensor, weights: Tensor) -> Mixed:
    """Return labels mixed as `mixup.mix` mixes them: each image with its mirror in the batch."""
    return Mixed(torch.stack([labels, labels.flip(0)], 1), torch.stack([weights, 1 - weights], 1))


class CrossEntropy(torch.autograd.Function):
    """Cross entropy of each image, from the logits of this rank's classes; the same number on all ranks."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, weights: Tensor, smoothing: float, shards: Shards) -> Tensor:
        largest = logits.amax(1)
        distributed.all_reduce(largest, distributed.ReduceOp.MAX)
        shifted = logits - largest[:, None]
        column = labels - shards.own.start
        here = (column >= 0) & (column < shards.rows)
        column = torch.where(here, column, 0)
        share = torch.where(here, weights, 0)
        of_labels = (shifted.gather(1, column) * share).sum(1)
        of_all = shifted.sum(1) if smoothing else torch.zeros_like(of_labels)
        exponents = shifted.exp_()
        sums = torch.stack([exponents.sum(1), of_labels, of_all])
        distributed.all_reduce(sums)
        total, of_labels, of_all = sums.unbind()
        ctx.save_for_backward(exponents, total, column, share)
        ctx.smoothing, ctx.classes = smoothing, shards.classes
        return total.log() - (1 - smoothing) * of_labels - smoothing / shards.classes * of_all

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        exponents, total, column, share = ctx.saved_tensors
        back = exponents * (gradients[0] / total)[:, None]
        if ctx.smoothing:
            back -= (gradients[0] * (ctx.smoothing / ctx.classes))[:, None]
        images = torch.arange(len(column), device=column.device)[:, None].expand_as(column)
        taken = -(1 - ctx.smoothing) * share * gradients[0][:, None]
        back.index_put_((images, column), taken.to(back.dtype), accumulate=True)
        return back, None, None, None, None


class SplitLoss:
    """Softmax cross entropy over the classes of all ranks, the mean over the images of all ranks."""

    def __init__(self, shards: Shards, smoothing: float, training: bool = True) -> None:
        self.shards, self.smoothing, self.training = shards, smoothing, training

    def __call__(self, logits: Tensor, labels: Tensor | Mixed) -> Tensor:
        return self.each(logits, labels).mean()

    def each(self, logits: Tensor, labels: Tensor | Mixed) -> Tensor:
        """Return the loss of each image."""
        if not isinstance(labels, Mixed):
            labels = Mixed(labels[:, None], logits.new_ones(len(labels), 1))
        counts = self.shards.counts_of(labels.labels, self.training)
        truth = self.shards.gather(labels.labels, counts), self.shards.gather(labels.weights, counts)
        losses: Tensor = CrossEntropy.apply(logits, *truth, self.smoothing, self.shards)  # type: ignore[no-untyped-call]
        return losses

    def judge(self, logits: Tensor, labels: Tensor, real: int) -> Judged:
        """Score this rank's images of an evaluation; `real` of them count, but all ranks must call it."""
        mine = self.shards.mine(self.shards.counts_of(labels, training=False))
        losses = self.each(logits, labels)[mine][:real]
        best = best_classes(logits, self.shards)[mine][:real]
        return Judged(losses.sum(), best[:, 0], (best == labels[:real, None]).sum())


def best_classes(logits: Tensor, shards: Shards) -> Tensor:
    """Return the five best classes of each image (or all, where there are fewer), the best one first."""
    wanted = min(FIRST, shards.classes)
    values, classes = logits.topk(min(wanted, shards.rows))
    lacking = (0, wanted - values.shape[1])
    values, classes = F.pad(values, lacking, value=-torch.inf), F.pad(classes + shards.own.start, lacking)
    counts = (len(logits),) * shards.ranks
    every = [shards.gather(part, counts).view(shards.ranks, len(logits), wanted) for part in (values, classes)]
    values, classes = (part.transpose(0, 1).flatten(1) for part in every)
    return classes.gather(1, values.topk(wanted).indices)


def count_correct(logits: Tensor, labels: Tensor | Mixed, shards: Shards) -> Tensor:
    """Return how many of this rank's images have the largest logit at their label, or the stronger of their two."""
    if isinstance(labels, Mixed):
        first, second = labels.labels.unbind(1)
        labels = torch.where(labels.weights[:, 0] >= labels.weights[:, 1], first, second)
    values, classes = logits.max(1)
    largest = values.clone()
    distributed.all_reduce(largest, distributed.ReduceOp.MAX)
    classes = torch.where(values == largest, classes + shards.own.start, shards.classes).int()
    distributed.all_reduce(classes, distributed.ReduceOp.MIN)  # of equals the first
    return (classes[shards.mine(shards.counts)] == labels).sum()


@sendable
class Rows(NamedTuple):
    """Placeholder for rows that are sent separately, or (not `sent`) that every rank has already."""

    shape: tuple[int, ...]  # of one row
    dtype: torch.dtype
    sent: bool


class SplitClassifier:
    """Classifier of a model split over the ranks: collective operations of a step, full tensors from and to rows."""

    def __init__(self, model: nn.Module, name: str, shards: Shards) -> None:
        split(model, name, shards)
        self.model, self.name, self.shards = model, name, shards
        self.parameters = list(model.get_submodule(name).parameters())
        self.names = {f"{name}.{own}" for own, _ in model.get_submodule(name).named_parameters()}
        self.indices: list[int] = []  # of these parameters in the optimizer's record
        self.kept: dict[Key, Tensor] = {}  # full tensors that rank 0 has loaded, until the others have their rows

    # Of a step

    def full_norms(self, parameters: list[Tensor], norms: Tensor) -> Tensor:
        """Return the 2-norms of full layers, from those of the rows here: `norms` has one for each parameter."""
        own = {id(parameter) for parameter in self.parameters}
        split_up = [id(parameter) in own for parameter in parameters]
        if not any(split_up):
            return norms
        mask = torch.tensor(split_up, device=norms.device)
        squares = norms[mask].square()
        distributed.all_reduce(squares)
        return norms.masked_scatter(mask, squares.sqrt())

    def clip_gradients(self, parameters: list[nn.Parameter], most: float) -> None:
        """Clip as `clip_grad_norm_` does, each row counted once."""
        with_gradients = [parameter for parameter in parameters if parameter.grad is not None]
        gradients = [parameter.grad for parameter in with_gradients if parameter.grad is not None]
        norms = self.full_norms(list(with_gradients), torch.stack(torch._foreach_norm(gradients)))
        clip_gradients(with_gradients, most, torch.linalg.vector_norm(norms))

    def agree_on_finite(self, finite: bool) -> bool:
        """Return True if the gradients are finite on all ranks: each rank has gradients that no other has."""
        all_finite = torch.tensor([int(finite)], dtype=torch.int32)
        distributed.all_reduce(all_finite, distributed.ReduceOp.MIN)
        return bool(all_finite.item())

    # Of checkpoints, which hold whole tensors whatever the layout

    def places(
        self, model: dict[str, Any], record: dict[str, Any], averages: dict[str, Any] | None
    ) -> Iterator[tuple[Key, dict[Any, Any]]]:
        """Yield each tensor of the classifier in weights, averaged weights and optimizer state, always in this order.

        Each is a key, whose last element is the key in a dict, and that dict.
        """
        for kind, tensors in (("model", model), ("averages", averages or {})):
            for name in sorted(self.names & tensors.keys()):
                yield (kind, name), tensors
        for index in self.indices:
            kept = record["state"].get(index, {})
            for key, value in kept.items():
                if isinstance(value, Rows) or (isinstance(value, Tensor) and value.ndim):
                    yield ("optimizer", index, key), kept

    def find_indices(self, optimizer: torch.optim.Optimizer) -> None:
        """Find the indices of the split parameters in the optimizer's state."""
        own = {id(parameter) for parameter in self.parameters}
        order = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self.indices = [index for index, parameter in enumerate(order) if id(parameter) in own]

    def gather(self, model: dict[str, Any], record: dict[str, Any], averages: dict[str, Any] | None) -> None:
        """Replace rows by full tensors on rank 0, in place. All ranks call it."""
        for key, holder in self.places(model, record, averages):
            holder[key[-1]] = self.to_first(holder[key[-1]])

    def take_rows(self, model: dict[str, Any], record: dict[str, Any], averages: dict[str, Any] | None) -> None:
        """Replace full tensors by this rank's rows, in place; the full ones are kept for the other ranks."""
        for key, holder in self.places(model, record, averages):
            holder[key[-1]] = self.keep(key, holder[key[-1]])

    def keep(self, key: Key, tensor: Tensor) -> Tensor:
        """Return this rank's rows and keep the full tensor; one with another number of rows is returned unchanged."""
        if len(tensor) != self.shards.classes:
            return tensor
        self.kept[key] = tensor
        return tensor[self.shards.own].clone()

    def pack(self, model: dict[str, Any], record: dict[str, Any], averages: dict[str, Any] | None) -> None:
        """Replace rows by placeholders on rank 0, in place: rows are sent separately."""
        for key, holder in self.places(model, record, averages):
            value = holder[key[-1]]
            holder[key[-1]] = Rows(tuple(value.shape[1:]), value.dtype, key in self.kept)

    def unpack(self, model: dict[str, Any], record: dict[str, Any], averages: dict[str, Any] | None) -> None:
        """Replace placeholders by rows, received from rank 0 or already here, in place. All ranks call it."""
        own = self.model.state_dict()
        for key, holder in self.places(model, record, averages):
            rows: Rows = holder[key[-1]]
            holder[key[-1]] = self.from_first(rows, self.kept.pop(key, None)) if rows.sent else own[key[-1]].cpu()

    def to_first(self, tensor: Tensor) -> Tensor:
        """Return the full tensor on rank 0 and the own rows elsewhere, on the host; sent piece by piece."""
        own = tensor.detach().cpu().contiguous()
        if self.shards.rank:
            for piece in pieces(own):
                distributed.send(piece, 0)
            return own
        full = own.new_empty(self.shards.classes, *own.shape[1:])
        full[self.shards.own] = own
        for rank in range(1, self.shards.ranks):
            for piece in pieces(full[slice(*self.shards.bounds(rank))]):
                distributed.recv(piece, rank)
        return full

    def from_first(self, rows: Rows, full: Tensor | None) -> Tensor:
        """Return this rank's rows of a tensor that rank 0 has."""
        if self.shards.rank:
            own = torch.empty(self.shards.rows, *rows.shape, dtype=rows.dtype)
            for piece in pieces(own):
                distributed.recv(piece, 0)
            return own
        assert full is not None
        full = full.cpu().contiguous()
        for rank in range(1, self.shards.ranks):
            for piece in pieces(full[slice(*self.shards.bounds(rank))]):
                distributed.send(piece, rank)
        return full[self.shards.own]

    def count_missing(self) -> int:
        """Return how many parameters only other ranks have."""
        here = sum(parameter.numel() for parameter in self.parameters)
        return here // self.shards.rows * (self.shards.classes - self.shards.rows)


def pieces(rows: Tensor) -> Iterator[Tensor]:
    """Yield views of consecutive rows, each of at most PIECE_BYTES or of one row."""
    row_bytes = max(1, rows[:1].numel() * rows.element_size())
    yield from torch.split(rows, max(1, PIECE_BYTES // row_bytes))
