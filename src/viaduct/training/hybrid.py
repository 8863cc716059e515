"""The classifier of very many classes, shared out over the ranks: each has some of its rows, all have the backbone.

    shards = Shards(classes, rank, ranks, counts)
    split(model, "head", shards)             in place; names stay, the layer keeps this rank's rows only
    logits = model(pictures)                 pictures of all ranks x own classes
    SplitLoss(shards, smoothing)(logits, labels)

Forward every rank gets the features of the whole batch (all-gather) and makes the logits of its own classes for all of
them. The softmax needs three sums over the ranks for each picture, and their largest logit. Backward the features'
gradients are added up and each rank gets those of its own pictures (reduce-scatter). The rows' own gradients are
complete where they are: nothing of the classifier ever travels in a step.

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

PIECE = 64 << 20  # bytes of a classifier that travel at a time
Key = tuple[Any, ...]


def collective(*names: str) -> Callable[..., Any]:
    """torch 2.13 has renamed these, and warns of their old names."""
    found: Callable[..., Any] = next(getattr(distributed, name) for name in names if hasattr(distributed, name))
    return found


all_gather = collective("all_gather_single", "all_gather_into_tensor")
reduce_scatter = collective("reduce_scatter_single", "reduce_scatter_tensor")


class Gather(torch.autograd.Function):
    """The rows of all ranks, which have equally many; backward, the sum over the ranks of a rank's own.

    That sum is of the mean loss over all pictures. DistributedDataParallel divides by the ranks what it adds up, as if
    each rank had a loss of its own, so it is multiplied by their number here.
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
    """Which classes each rank has. What does not divide evenly goes to the first ranks, one class each."""

    classes: int
    rank: int
    ranks: int
    counts: tuple[int, ...]  # pictures of each rank in a part of a training step

    def bounds(self, rank: int) -> tuple[int, int]:
        each, more = divmod(self.classes, self.ranks)
        first = rank * each + min(rank, more)
        return first, first + each + (rank < more)

    @property
    def own(self) -> slice:
        return slice(*self.bounds(self.rank))

    @property
    def rows(self) -> int:
        first, end = self.bounds(self.rank)
        return end - first

    def counts_of(self, own: Tensor, training: bool) -> tuple[int, ...]:
        """How many pictures the ranks have in this pass; in evaluation all have equally many."""
        return self.counts if training else (len(own),) * self.ranks

    def gather(self, own: Tensor, counts: tuple[int, ...]) -> Tensor:
        """What all ranks have of their pictures, in the order of the ranks."""
        most = max(counts)
        lacking = most - len(own)
        padded = F.pad(own, (0, 0) * (own.ndim - 1) + (0, lacking)) if lacking else own
        every: Tensor = Gather.apply(padded, self.ranks)  # type: ignore[no-untyped-call]
        if min(counts) == most:
            return every
        return torch.cat([every[rank * most : rank * most + count] for rank, count in enumerate(counts)])

    def mine(self, counts: tuple[int, ...]) -> slice:
        """Where this rank's pictures stand among those of all."""
        first = sum(counts[: self.rank])
        return slice(first, first + counts[self.rank])


class SplitLinear(nn.Linear):
    """A dense layer with this rank's rows; it answers for the pictures of all ranks."""

    shards: Shards

    @disable_dynamo  # a compiled network calls it between its parts
    def forward(self, input: Tensor) -> Tensor:
        every = self.shards.gather(input, self.shards.counts_of(input, self.training))
        return F.linear(every, self.weight, self.bias)


@torch.no_grad()
def split(model: nn.Module, name: str, shards: Shards) -> None:
    """Leave this rank its rows of that layer."""
    layer: Any = model.get_submodule(name)
    layer.weight = nn.Parameter(layer.weight[shards.own].clone())
    if layer.bias is not None:
        layer.bias = nn.Parameter(layer.bias[shards.own].clone())
    layer.shards = shards
    layer.__class__ = SplitLinear


class Mixed(NamedTuple):
    """Mixup's labels without a row of shares for every class: the classes of each picture, and the share of each."""

    labels: Tensor  # N,2
    weights: Tensor  # N,2

    def chunk(self, parts: int) -> list[Mixed]:
        return [Mixed(*both) for both in zip(self.labels.chunk(parts), self.weights.chunk(parts), strict=True)]


def mixed_labels(labels: Tensor, weights: Tensor) -> Mixed:
    """As `mixup.mix` mixes them: each picture with its mirror in the batch."""
    return Mixed(torch.stack([labels, labels.flip(0)], 1), torch.stack([weights, 1 - weights], 1))


class CrossEntropy(torch.autograd.Function):
    """Of each picture, from the logits of this rank's classes; the same number on all ranks."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, weights: Tensor, smoothing: float, shards: Shards) -> Tensor:
        largest = logits.amax(1)
        distributed.all_reduce(largest, distributed.ReduceOp.MAX)
        shifted = logits - largest[:, None]
        place = labels - shards.own.start
        here = (place >= 0) & (place < shards.rows)
        place = torch.where(here, place, 0)
        share = torch.where(here, weights, 0)
        of_labels = (shifted.gather(1, place) * share).sum(1)
        of_all = shifted.sum(1) if smoothing else torch.zeros_like(of_labels)
        exponents = shifted.exp_()
        sums = torch.stack([exponents.sum(1), of_labels, of_all])
        distributed.all_reduce(sums)
        total, of_labels, of_all = sums.unbind()
        ctx.save_for_backward(exponents, total, place, share)
        ctx.smoothing, ctx.classes = smoothing, shards.classes
        return total.log() - (1 - smoothing) * of_labels - smoothing / shards.classes * of_all

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        exponents, total, place, share = ctx.saved_tensors
        back = exponents * (gradients[0] / total)[:, None]
        if ctx.smoothing:
            back -= (gradients[0] * (ctx.smoothing / ctx.classes))[:, None]
        pictures = torch.arange(len(place), device=place.device)[:, None].expand_as(place)
        taken = -(1 - ctx.smoothing) * share * gradients[0][:, None]
        back.index_put_((pictures, place), taken.to(back.dtype), accumulate=True)
        return back, None, None, None, None


class SplitLoss:
    """Softmax cross entropy over the classes of all ranks, the mean over the pictures of all ranks."""

    def __init__(self, shards: Shards, smoothing: float, training: bool = True) -> None:
        self.shards, self.smoothing, self.training = shards, smoothing, training

    def __call__(self, logits: Tensor, labels: Tensor | Mixed) -> Tensor:
        return self.each(logits, labels).mean()

    def each(self, logits: Tensor, labels: Tensor | Mixed) -> Tensor:
        """Picture by picture."""
        if not isinstance(labels, Mixed):
            labels = Mixed(labels[:, None], logits.new_ones(len(labels), 1))
        counts = self.shards.counts_of(labels.labels, self.training)
        truth = self.shards.gather(labels.labels, counts), self.shards.gather(labels.weights, counts)
        losses: Tensor = CrossEntropy.apply(logits, *truth, self.smoothing, self.shards)  # type: ignore[no-untyped-call]
        return losses

    def judge(self, logits: Tensor, labels: Tensor, real: int) -> Judged:
        """This rank's pictures of an evaluation; `real` of them count, but all ranks must come here."""
        mine = self.shards.mine(self.shards.counts_of(labels, training=False))
        losses = self.each(logits, labels)[mine][:real]
        best = best_classes(logits, self.shards)[mine][:real]
        return Judged(losses.sum(), best[:, 0], (best == labels[:real, None]).sum())


def best_classes(logits: Tensor, shards: Shards) -> Tensor:
    """The first five classes of each picture (or all, where there are fewer), the best one first."""
    wanted = min(FIRST, shards.classes)
    values, places = logits.topk(min(wanted, shards.rows))
    lacking = (0, wanted - values.shape[1])
    values, places = F.pad(values, lacking, value=-torch.inf), F.pad(places + shards.own.start, lacking)
    counts = (len(logits),) * shards.ranks
    every = [shards.gather(part, counts).view(shards.ranks, len(logits), wanted) for part in (values, places)]
    values, places = (part.transpose(0, 1).flatten(1) for part in every)
    return places.gather(1, values.topk(wanted).indices)


def count_right(logits: Tensor, labels: Tensor | Mixed, shards: Shards) -> Tensor:
    """How many of this rank's pictures have the largest logit at their label, or at the stronger of their two."""
    if isinstance(labels, Mixed):
        first, second = labels.labels.unbind(1)
        labels = torch.where(labels.weights[:, 0] >= labels.weights[:, 1], first, second)
    values, places = logits.max(1)
    largest = values.clone()
    distributed.all_reduce(largest, distributed.ReduceOp.MAX)
    places = torch.where(values == largest, places + shards.own.start, shards.classes).int()
    distributed.all_reduce(places, distributed.ReduceOp.MIN)  # of equals the first
    return (places[shards.mine(shards.counts)] == labels).sum()


@sendable
class Rows(NamedTuple):
    """Stands for rows that travel by themselves, or that every rank has already."""

    shape: tuple[int, ...]  # of one row
    dtype: torch.dtype
    sent: bool


class Hybrid:
    """A model whose classifier is shared out: what must be asked of all ranks, and whole tensors from and to rows."""

    def __init__(self, model: nn.Module, name: str, shards: Shards) -> None:
        split(model, name, shards)
        self.model, self.name, self.shards = model, name, shards
        self.parameters = list(model.get_submodule(name).parameters())
        self.names = {f"{name}.{own}" for own, _ in model.get_submodule(name).named_parameters()}
        self.indices: list[int] = []  # of these parameters in the optimizer's record
        self.kept: dict[Key, Tensor] = {}  # whole tensors that rank 0 has loaded, until the others have their rows

    # Of a step

    def whole_norms(self, parameters: list[Tensor], norms: Tensor) -> Tensor:
        """The 2-norms of whole layers, from those of what is here: `norms` has one for each parameter."""
        own = {id(parameter) for parameter in self.parameters}
        split_up = [id(parameter) in own for parameter in parameters]
        if not any(split_up):
            return norms
        mask = torch.tensor(split_up, device=norms.device)
        squares = norms[mask].square()
        distributed.all_reduce(squares)
        return norms.masked_scatter(mask, squares.sqrt())

    def clip(self, parameters: list[nn.Parameter], most: float) -> None:
        """As `clip_grad_norm_`, each row counted once."""
        learning = [parameter for parameter in parameters if parameter.grad is not None]
        gradients = [parameter.grad for parameter in learning if parameter.grad is not None]
        norms = self.whole_norms(list(learning), torch.stack(torch._foreach_norm(gradients)))
        clip_gradients(learning, most, torch.linalg.vector_norm(norms))

    def agreed(self, finite: bool) -> bool:
        """Whether all ranks say so: the rows' gradients are nowhere else."""
        said = torch.tensor([int(finite)], dtype=torch.int32)
        distributed.all_reduce(said, distributed.ReduceOp.MIN)
        return bool(said.item())

    # Of checkpoints, which hold whole tensors whatever the layout

    def places(
        self, model: dict[str, Any], record: dict[str, Any], averages: dict[str, Any] | None
    ) -> Iterator[tuple[Key, dict[Any, Any]]]:
        """Where the classifier stands in weights, in an optimizer's record and in averaged weights, always in this
        order: a key whose last word is the holder's key."""
        for kind, tensors in (("model", model), ("averages", averages or {})):
            for name in sorted(self.names & tensors.keys()):
                yield (kind, name), tensors
        for index in self.indices:
            kept = record["state"].get(index, {})
            for key, value in kept.items():
                if isinstance(value, Rows) or (isinstance(value, Tensor) and value.ndim):
                    yield ("optimizer", index, key), kept

    def know(self, optimizer: torch.optim.Optimizer) -> None:
        """Which of the optimizer's parameters are shared out."""
        own = {id(parameter) for parameter in self.parameters}
        order = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self.indices = [index for index, parameter in enumerate(order) if id(parameter) in own]

    def loose(self, record: dict[str, Any]) -> dict[str, Any]:
        """An optimizer's record that may be changed."""
        return {**record, "state": {index: dict(kept) for index, kept in record["state"].items()}}

    def gather(self, model: dict[str, Any], record: dict[str, Any], averages: dict[str, Any] | None) -> None:
        """In place, on rank 0: whole tensors. All ranks come here."""
        for key, holder in self.places(model, record, averages):
            holder[key[-1]] = self.to_first(holder[key[-1]])

    def cut(self, model: dict[str, Any], record: dict[str, Any], averages: dict[str, Any] | None) -> None:
        """In place: this rank's rows of whole tensors, which are kept for the others."""
        for key, holder in self.places(model, record, averages):
            holder[key[-1]] = self.keep(key, holder[key[-1]])

    def keep(self, key: Key, tensor: Tensor) -> Tensor:
        """This rank's rows. What has another number of classes, or is this rank's already, stays what it is."""
        if len(tensor) != self.shards.classes:
            return tensor
        self.kept[key] = tensor
        return tensor[self.shards.own].clone()

    def pack(self, model: dict[str, Any], record: dict[str, Any], averages: dict[str, Any] | None) -> None:
        """In place, on rank 0: rows do not travel with the rest."""
        for key, holder in self.places(model, record, averages):
            value = holder[key[-1]]
            holder[key[-1]] = Rows(tuple(value.shape[1:]), value.dtype, key in self.kept)

    def unpack(self, model: dict[str, Any], record: dict[str, Any], averages: dict[str, Any] | None) -> None:
        """In place: every rank gets its rows from rank 0, or has them. All ranks come here."""
        own = self.model.state_dict()
        for key, holder in self.places(model, record, averages):
            rows: Rows = holder[key[-1]]
            holder[key[-1]] = self.from_first(rows, self.kept.pop(key, None)) if rows.sent else own[key[-1]].cpu()

    def to_first(self, tensor: Tensor) -> Tensor:
        """On rank 0 the rows of all ranks, on the host; on the others only their own. Piece by piece."""
        own = tensor.detach().cpu().contiguous()
        if self.shards.rank:
            for piece in pieces(own):
                distributed.send(piece, 0)
            return own
        whole = own.new_empty(self.shards.classes, *own.shape[1:])
        whole[self.shards.own] = own
        for rank in range(1, self.shards.ranks):
            for piece in pieces(whole[slice(*self.shards.bounds(rank))]):
                distributed.recv(piece, rank)
        return whole

    def from_first(self, rows: Rows, whole: Tensor | None) -> Tensor:
        """This rank's rows of a tensor that rank 0 has."""
        if self.shards.rank:
            own = torch.empty(self.shards.rows, *rows.shape, dtype=rows.dtype)
            for piece in pieces(own):
                distributed.recv(piece, 0)
            return own
        assert whole is not None
        whole = whole.cpu().contiguous()
        for rank in range(1, self.shards.ranks):
            for piece in pieces(whole[slice(*self.shards.bounds(rank))]):
                distributed.send(piece, rank)
        return whole[self.shards.own]

    def missing(self) -> int:
        """How many parameters the other ranks have."""
        here = sum(parameter.numel() for parameter in self.parameters)
        return here // self.shards.rows * (self.shards.classes - self.shards.rows)


def pieces(rows: Tensor) -> Iterator[Tensor]:
    """Views of some rows each, none much larger than `PIECE`."""
    of_a_row = max(1, rows[:1].numel() * rows.element_size())
    yield from torch.split(rows, max(1, PIECE // of_a_row))
