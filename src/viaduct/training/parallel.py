"""Strategies of a run's ranks: one rank alone, the whole network on all ranks (data), a split classifier (hybrid).

All have the interface of `SingleRank`, which the training step, evaluations and checkpoints use.

    parallel = build_strategy(recipe, model, group, layout.classifier)     in a hybrid run it splits the classifier
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed, nn

from viaduct.data.batches import RankShare
from viaduct.recipes import Recipe
from viaduct.torch_compat import clip_gradients
from viaduct.training.checkpoint import Snapshot
from viaduct.training.distributed import Group, wrap_network
from viaduct.training.hybrid import Shards, SplitLinear, SplitLoss, mix_labels, split_layer
from viaduct.training.hybrid import count_correct as count_correct_of_shards
from viaduct.training.messages import sendable
from viaduct.training.metrics import TOP, BatchScorer
from viaduct.training.mixup import find_label_weights, mix, mix_images
from viaduct.training.optim import build_loss, compute_smoothing
from viaduct.training.optimizer_support import OptimizerSupport

PIECE_BYTES = 64 << 20  # a classifier's rows are sent in messages of at most this size
# Location of a tensor in a run's state: ("model", name), ("averages", name) or ("optimizer", index, slot).
TensorKey = tuple[Any, ...]


@sendable
class RowsPlaceholder(NamedTuple):
    """Stands for the classifier's rows in a state that is broadcast, because each rank has other rows."""

    shape: tuple[int, ...]  # shape of one row
    dtype: torch.dtype
    is_sent: bool  # True: rank 0 sends the rows separately; False: every rank has its own rows already


class SingleRank:
    """Strategy of a run with one rank; also the base of the other strategies."""

    name = "data"  # in the summary of a run
    capture_obstacle: str | None = None  # reason why no step can be captured as a device graph
    score_batch: BatchScorer | None = None  # used in evaluations if a rank has the logits of some classes only

    def __init__(self, recipe: Recipe, group: Group) -> None:
        self.recipe, self.group = recipe, group
        self.share = RankShare(group.rank, group.ranks, recipe.accumulate, recipe.mixes_images, group.local_ranks)
        # Which images of a global batch this rank has: their positions in it.
        _, self.positions = self.share.split_batch(recipe.data.global_batch, train=True)

    # In a training step

    def wrap_network(self, network: nn.Module) -> nn.Module:
        """Return the network, wrapped with several ranks so that gradients are averaged over them."""
        return network

    def build_loss(self) -> Callable[[Tensor, Any], Tensor]:
        return build_loss(self.recipe, training=True)

    @property
    def rank_loss_weight(self) -> float:
        """Factor of this rank's loss in its backward pass."""
        return self.weight_in_mean

    @property
    def weight_in_mean(self) -> float:
        """Weight of this rank's loss in the mean over the ranks: above 1 if it has more images than average."""
        return len(self.positions) * self.group.ranks / self.recipe.data.global_batch

    def mix_batch(self, images: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, Any]:
        """Return images and labels mixed by weights of mixup or rows of cutmix, which are on the device."""
        return mix(images, labels, weights, self.recipe.data.classes)

    @property
    def counts_top5(self) -> bool:
        """Return True if training also counts images whose label is among the five largest logits."""
        return "top5" in self.recipe.log.tensorboard_names

    def count_correct(self, logits: Tensor, labels: Any) -> Tensor:
        """Return the number of correct images as a 1-D tensor; with `counts_top5` a second one for top-5."""
        correct = count_correct(logits, labels)
        return torch.stack([correct, count_correct(logits, labels, TOP)]) if self.counts_top5 else correct[None]

    def clip_gradients(self, parameters: list[nn.Parameter], max_norm: float) -> None:
        """Scale the gradients so that their common norm is at most `max_norm`."""
        nn.utils.clip_grad_norm_(parameters, max_norm)

    def agree_on_finite(self, finite: bool) -> bool:
        """Return True if the gradients are finite on all ranks; `finite`: they are on this one.

        With the whole network on each rank all have the same averaged gradients, and nothing is sent.
        """
        return finite

    def reduce_results(self, losses: Tensor, correct_counts: Tensor) -> tuple[Tensor, Tensor]:
        """Return the means of the losses and the sums of the counts of correct images over all ranks."""
        return losses, correct_counts

    def compute_full_norms(self, parameters: list[Tensor], norms: Tensor) -> Tensor:
        """Return the 2-norms of whole parameters, from the 2-norms of this rank's rows of them."""
        return norms

    def attach_optimizer(self, optimizer_support: OptimizerSupport) -> None:
        """Prepare the optimizer for split layers, if there are any."""

    # In checkpoints, which hold full tensors whatever the strategy

    def list_full_shapes(self, model: nn.Module) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the tensors that a checkpoint holds."""
        return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}

    def count_missing_parameters(self) -> int:
        """Return how many parameters only other ranks have."""
        return 0

    def gather_full_tensors(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot, on rank 0 with full tensors. All ranks call it."""
        return snapshot

    def broadcast(self, snapshot: Snapshot) -> Snapshot:
        """Return rank 0's snapshot on every rank. All ranks call it."""
        return snapshot

    def take_rows(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with this rank's rows in place of full tensors."""
        return snapshot

    def take_tensor_rows(self, key: TensorKey, value: Any) -> Any:
        """Return this rank's rows of one full tensor."""
        return value


class DataParallel(SingleRank):
    """Strategy of several ranks with the whole network; DistributedDataParallel averages the gradients."""

    capture_obstacle = "several ranks take part"

    def wrap_network(self, network: nn.Module) -> nn.Module:
        # SplitLinear, a layer whose rows are split over the ranks, is not averaged. Only hybrid runs, which inherit
        # this method, have one.
        return wrap_network(network, self.recipe.parallel, self.recipe.deterministic, self.group, (SplitLinear,))

    @property
    def rank_loss_weight(self) -> float:
        # DistributedDataParallel divides gradients by the number of ranks; for a sum the factor undoes it.
        return self.weight_in_mean * (self.group.ranks if self.recipe.parallel.reduce == "sum" else 1)

    def reduce_results(self, losses: Tensor, correct_counts: Tensor) -> tuple[Tensor, Tensor]:
        both = torch.cat([losses * (self.weight_in_mean / self.group.ranks), correct_counts.double()])
        distributed.all_reduce(both)
        return both[: len(losses)], both[len(losses) :]

    def broadcast(self, snapshot: Snapshot) -> Snapshot:
        return self.group.broadcast_value(snapshot)


class HybridParallel(DataParallel):
    """Strategy of several ranks whose classifier is split by classes; everything else is data parallel."""

    name = "hybrid"
    counts_top5 = False  # a rank has the logits of its own classes only

    def __init__(self, recipe: Recipe, group: Group, model: nn.Module, classifier: str) -> None:
        """Split the layer `classifier` of the model in place."""
        super().__init__(recipe, group)
        shares = [replace(self.share, rank=rank) for rank in range(group.ranks)]
        sizes = [len(share.split_batch(recipe.data.global_batch, train=True)[1]) for share in shares]
        counts = tuple(size // recipe.accumulate for size in sizes)  # each rank's images in one forward pass
        self.shards = Shards(recipe.data.classes, group.rank, group.ranks, counts)
        self.score_batch = SplitLoss(self.shards, compute_smoothing(recipe, training=False), training=False).score_batch
        split_layer(model, classifier, self.shards)
        self.model = model
        self.split_parameters = list(model.get_submodule(classifier).parameters())
        self.split_ids = {id(parameter) for parameter in self.split_parameters}
        # Names of the split parameters in the model.
        self.names = {f"{classifier}.{leaf}" for leaf, _ in model.get_submodule(classifier).named_parameters()}
        self.indices: list[int] = []  # indices of the split parameters in the optimizer's state dict
        self.full_tensors: dict[TensorKey, Tensor] = {}  # loaded by rank 0, kept until the other ranks have their rows

    # In a training step

    def build_loss(self) -> Callable[[Tensor, Any], Tensor]:
        return SplitLoss(self.shards, compute_smoothing(self.recipe, training=True))

    @property
    def rank_loss_weight(self) -> float:
        return 1.0  # each rank computes the loss of the whole batch

    def mix_batch(self, images: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, Any]:
        return mix_images(images, weights), mix_labels(labels, find_label_weights(weights))

    def count_correct(self, logits: Tensor, labels: Any) -> Tensor:
        return count_correct_of_shards(logits, labels, self.shards)[None]

    def compute_full_norms(self, parameters: list[Tensor], norms: Tensor) -> Tensor:
        is_split = [id(parameter) in self.split_ids for parameter in parameters]
        if not any(is_split):
            return norms
        mask = torch.tensor(is_split, device=norms.device)
        squares = norms[mask].square()
        distributed.all_reduce(squares)
        return norms.masked_scatter(mask, squares.sqrt())

    def clip_gradients(self, parameters: list[nn.Parameter], max_norm: float) -> None:
        with_gradients = [parameter for parameter in parameters if parameter.grad is not None]
        gradients = [parameter.grad for parameter in with_gradients if parameter.grad is not None]
        norms = self.compute_full_norms(list(with_gradients), torch.stack(torch._foreach_norm(gradients)))
        clip_gradients(with_gradients, max_norm, torch.linalg.vector_norm(norms))

    def agree_on_finite(self, finite: bool) -> bool:
        all_finite = torch.tensor([int(finite)], dtype=torch.int32)
        distributed.all_reduce(all_finite, distributed.ReduceOp.MIN)
        return bool(all_finite.item())

    def attach_optimizer(self, optimizer_support: OptimizerSupport) -> None:
        order = [parameter for group in optimizer_support.optimizer.param_groups for parameter in group["params"]]
        self.indices = [index for index, parameter in enumerate(order) if id(parameter) in self.split_ids]
        optimizer_support.set_full_norms(self.compute_full_norms)

    # In checkpoints

    def list_full_shapes(self, model: nn.Module) -> dict[str, tuple[int, ...]]:
        shapes = super().list_full_shapes(model)
        return shapes | {name: (self.recipe.data.classes, *shapes[name][1:]) for name in self.names}

    def count_missing_parameters(self) -> int:
        own_count = sum(parameter.numel() for parameter in self.split_parameters)
        return own_count // self.shards.own_class_count * (self.shards.classes - self.shards.own_class_count)

    def gather_full_tensors(self, snapshot: Snapshot) -> Snapshot:
        return self.replace_tensors(snapshot, self.gather_to_first)

    def broadcast(self, snapshot: Snapshot) -> Snapshot:
        received = super().broadcast(self.replace_tensors(snapshot, self.make_placeholder))
        return self.replace_tensors(received, self.fill_placeholder)

    def take_rows(self, snapshot: Snapshot) -> Snapshot:
        return self.replace_tensors(snapshot, self.take_tensor_rows)

    def replace_tensors(self, snapshot: Snapshot, replace_tensor: Callable[[TensorKey, Any], Any]) -> Snapshot:
        """Return a copy of a snapshot with `replace_tensor(key, tensor)` in place of each tensor of the classifier.

        The order is the same on all ranks, because some replacements are collective operations.
        """
        model = dict(snapshot.model)
        averages = None if snapshot.averages is None else dict(snapshot.averages)
        for kind, tensors in (("model", model), ("averages", averages or {})):
            for name in sorted(self.names & tensors.keys()):
                tensors[name] = replace_tensor((kind, name), tensors[name])
        state = copy_optimizer_state(snapshot.state)
        for index in self.indices:
            slots = state["optimizer"]["state"].get(index, {})
            for slot, value in slots.items():
                if isinstance(value, RowsPlaceholder) or (isinstance(value, Tensor) and value.ndim):
                    slots[slot] = replace_tensor(("optimizer", index, slot), value)
        return Snapshot(model, state, averages)

    def take_tensor_rows(self, key: TensorKey, value: Any) -> Any:
        """Return this rank's rows of a full tensor of the classifier, which is kept for the other ranks.

        Other tensors, and tensors that have only this rank's rows, are returned unchanged.
        """
        parameter = key[1]  # its name, or its index in the optimizer's state
        is_split = parameter in self.names or parameter in self.indices
        if not is_split or not value.ndim or len(value) != self.shards.classes:
            return value
        self.full_tensors[key] = value
        return value[self.shards.own_classes].clone()

    # Functions for `replace_tensors`, which passes them a tensor and its key.

    def make_placeholder(self, key: TensorKey, rows: Tensor) -> RowsPlaceholder:
        """Return the placeholder of rows in a state that is broadcast."""
        return RowsPlaceholder(tuple(rows.shape[1:]), rows.dtype, key in self.full_tensors)

    def fill_placeholder(self, key: TensorKey, placeholder: RowsPlaceholder) -> Tensor:
        """Return this rank's rows: received from rank 0 or, if not sent, those of the model. All ranks call it."""
        if not placeholder.is_sent:
            *_, name = key
            rows: Tensor = self.model.state_dict()[name].cpu()
            return rows
        return self.scatter_from_first(placeholder, self.full_tensors.pop(key, None))

    def gather_to_first(self, key: TensorKey, rows: Tensor) -> Tensor:
        """Return the full tensor on rank 0, this rank's rows on others, both on the host. All ranks call it."""
        own_rows = rows.detach().cpu().contiguous()
        if self.shards.rank:
            for piece in split_into_pieces(own_rows):
                distributed.send(piece, 0)
            return own_rows
        full = own_rows.new_empty(self.shards.classes, *own_rows.shape[1:])
        full[self.shards.own_classes] = own_rows
        for rank in range(1, self.shards.ranks):
            for piece in split_into_pieces(full[slice(*self.shards.find_class_range(rank))]):
                distributed.recv(piece, rank)
        return full

    def scatter_from_first(self, placeholder: RowsPlaceholder, full: Tensor | None) -> Tensor:
        """Return this rank's rows of a tensor that rank 0 has in full. All ranks call it."""
        if self.shards.rank:
            own_rows = torch.empty(self.shards.own_class_count, *placeholder.shape, dtype=placeholder.dtype)
            for piece in split_into_pieces(own_rows):
                distributed.recv(piece, 0)
            return own_rows
        assert full is not None
        full = full.cpu().contiguous()
        for rank in range(1, self.shards.ranks):
            for piece in split_into_pieces(full[slice(*self.shards.find_class_range(rank))]):
                distributed.send(piece, rank)
        return full[self.shards.own_classes]


def build_strategy(recipe: Recipe, model: nn.Module, group: Group, classifier: str | None) -> SingleRank:
    """Return the strategy of a run; `classifier` is the name of the layer that is split in place, or None."""
    if classifier is not None:
        return HybridParallel(recipe, group, model, classifier)
    return SingleRank(recipe, group) if group.ranks == 1 else DataParallel(recipe, group)


def copy_optimizer_state(state: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a state whose optimizer entries can be replaced without changing the original."""
    optimizer = state["optimizer"]
    entries = {index: dict(entry) for index, entry in optimizer["state"].items()}
    return {**state, "optimizer": {**optimizer, "state": entries}}


def count_correct(logits: Tensor, labels: Tensor, top: int = 1) -> Tensor:
    """Return how many images have their label, the strongest of mixed ones, among the `top` largest logits."""
    strongest = labels if labels.ndim == 1 else labels.argmax(1)
    if top == 1:
        return (logits.argmax(1) == strongest).sum()
    return (logits.topk(min(top, logits.shape[1])).indices == strongest[:, None]).sum()


def split_into_pieces(rows: Tensor) -> Iterator[Tensor]:
    """Yield views of consecutive rows, each of at most PIECE_BYTES or of one row."""
    row_bytes = max(1, rows[:1].numel() * rows.element_size())
    yield from torch.split(rows, max(1, PIECE_BYTES // row_bytes))
