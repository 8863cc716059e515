"""Strategies of a run's ranks: one rank alone, the whole network on all ranks (data), a split classifier (hybrid).

All have the interface of `SingleRank`, which the training step, evaluations and checkpoints use.

    parallel = build_strategy(recipe, model, group, layout.classifier)     splits the classifier of a hybrid run
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from viaduct.data.batches import Share
from viaduct.recipes import Recipe
from viaduct.training.distributed import Group, wrap_network
from viaduct.training.hybrid import Shards, SplitClassifier, SplitLinear, SplitLoss, mix_labels
from viaduct.training.hybrid import count_correct as count_correct_of_shards
from viaduct.training.metrics import TOP, BatchScorer
from viaduct.training.mixup import find_label_weights, mix, mix_images
from viaduct.training.optim import build_loss, compute_smoothing
from viaduct.training.optimizer_support import OptimizerSupport

# In the methods for checkpoints, `model` and `averages` (averaged weights) map names to tensors. `state` is everything
# else in a checkpoint, as `snapshot.RunState.read_state` returns it.
State = dict[str, Any]


class SingleRank:
    """Strategy of a run with one rank; also the base of the other strategies."""

    name = "data"  # in the summary of a run
    capture_obstacle: str | None = None  # reason why no step can be captured
    score_batch: BatchScorer | None = None  # for evaluations, if a rank has the logits of some classes only

    def __init__(self, recipe: Recipe, group: Group) -> None:
        self.recipe, self.group = recipe, group
        self.share = Share(group.rank, group.ranks, recipe.accumulate, recipe.mixes_images, group.local_ranks)
        # The positions of this rank's images in a global batch.
        _, self.positions = self.share.split_batch(recipe.data.global_batch, train=True)

    # In a training step

    def wrap_network(self, network: nn.Module) -> nn.Module:
        """Return the network, wrapped with several ranks so that gradients are averaged over them."""
        return network

    def build_loss(self) -> Callable[[Tensor, Any], Tensor]:
        return build_loss(self.recipe, training=True)

    @property
    def loss_weight(self) -> float:
        """Factor of this rank's loss in its backward pass."""
        return self.weight

    @property
    def weight(self) -> float:
        """Weight of this rank's loss in the mean over the ranks: above 1 if it has more images than others."""
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
        """Return True if the gradients are finite on all ranks."""
        return finite

    def reduce_results(self, losses: Tensor, hits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean of each loss and the sum of the hits (counts of correct images) over all ranks."""
        return losses, hits

    def compute_full_norms(self, parameters: list[Tensor], norms: Tensor) -> Tensor:
        """Return the 2-norms of full layers, from those of this rank's part."""
        return norms

    def attach_optimizer(self, support: OptimizerSupport) -> None:
        """Prepare the optimizer for split layers, if there are any."""

    # In checkpoints, which hold full tensors whatever the strategy

    def list_full_shapes(self, model: nn.Module) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the tensors that a checkpoint holds."""
        return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}

    def count_missing_parameters(self) -> int:
        """Return how many parameters only other ranks have."""
        return 0

    def gather_full_tensors(self, model: State, state: State, averages: State | None) -> tuple[State, State]:
        """Return model and state with full tensors on rank 0; change `averages` in place. All ranks call it."""
        return model, state

    def broadcast(self, model: State, state: State, averages: State | None) -> tuple[State, State, State | None]:
        """Return rank 0's tensors and state on every rank. All ranks call it."""
        return model, state, averages

    def take_rows(self, model: State, state: State, averages: State | None) -> State:
        """Replace full tensors by this rank's rows, in place in `model` and `averages`; return the changed `state`."""
        return state

    def take_tensor_rows(self, key: tuple[Any, ...], value: Any) -> Any:
        """Return this rank's rows of one full tensor; `key` is a `hybrid.TensorKey`."""
        return value

    def has_full_model(self) -> bool:
        """Return True if this rank has every parameter."""
        return True


class DataParallel(SingleRank):
    """Strategy of several ranks with the whole network; DistributedDataParallel averages the gradients."""

    capture_obstacle = "several ranks take part"

    def wrap_network(self, network: nn.Module) -> nn.Module:
        # SplitLinear, a layer whose rows are split over the ranks, is not averaged. Only hybrid runs, which inherit
        # this method, have one.
        return wrap_network(network, self.recipe.parallel, self.recipe.deterministic, self.group, (SplitLinear,))

    @property
    def loss_weight(self) -> float:
        # DistributedDataParallel divides by the number of ranks; for a sum this is undone.
        return self.weight * (self.group.ranks if self.recipe.parallel.reduce == "sum" else 1)

    def reduce_results(self, losses: Tensor, hits: Tensor) -> tuple[Tensor, Tensor]:
        both = torch.cat([losses * (self.weight / self.group.ranks), hits.double()])
        self.group.sum_over_ranks(both)
        return both[: len(losses)], both[len(losses) :]

    def broadcast(self, model: State, state: State, averages: State | None) -> tuple[State, State, State | None]:
        return self.group.broadcast_value((model, state, averages))


class HybridParallel(DataParallel):
    """Strategy of several ranks whose classifier is split by classes; everything else is data parallel."""

    name = "hybrid"
    counts_top5 = False  # a rank has the logits of its own classes only

    def __init__(self, recipe: Recipe, group: Group, model: nn.Module, classifier: str) -> None:
        super().__init__(recipe, group)
        shares = [replace(self.share, rank=rank) for rank in range(group.ranks)]
        sizes = [len(share.split_batch(recipe.data.global_batch, train=True)[1]) for share in shares]
        counts = tuple(size // recipe.accumulate for size in sizes)  # each rank's images in one forward pass
        self.shards = Shards(recipe.data.classes, group.rank, group.ranks, counts)
        self.classifier = SplitClassifier(model, classifier, self.shards)
        self.score_batch = SplitLoss(self.shards, compute_smoothing(recipe, training=False), training=False).score_batch

    def build_loss(self) -> Callable[[Tensor, Any], Tensor]:
        return SplitLoss(self.shards, compute_smoothing(self.recipe, training=True))

    @property
    def loss_weight(self) -> float:
        return 1.0  # the loss is that of the whole batch already

    def mix_batch(self, images: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, Any]:
        return mix_images(images, weights), mix_labels(labels, find_label_weights(weights))

    def count_correct(self, logits: Tensor, labels: Any) -> Tensor:
        return count_correct_of_shards(logits, labels, self.shards)[None]

    def clip_gradients(self, parameters: list[nn.Parameter], max_norm: float) -> None:
        self.classifier.clip_gradients(parameters, max_norm)

    def agree_on_finite(self, finite: bool) -> bool:
        return self.classifier.agree_on_finite(finite)

    def compute_full_norms(self, parameters: list[Tensor], norms: Tensor) -> Tensor:
        return self.classifier.compute_full_norms(parameters, norms)

    def attach_optimizer(self, support: OptimizerSupport) -> None:
        self.classifier.find_indices(support.optimizer)
        support.set_full_norms(self.compute_full_norms)

    def list_full_shapes(self, model: nn.Module) -> dict[str, tuple[int, ...]]:
        shapes = super().list_full_shapes(model)
        return shapes | {name: (self.recipe.data.classes, *shapes[name][1:]) for name in self.classifier.names}

    def count_missing_parameters(self) -> int:
        return self.classifier.count_missing_parameters()

    def gather_full_tensors(self, model: State, state: State, averages: State | None) -> tuple[State, State]:
        model, state = dict(model), copy_optimizer_state(state)
        self.classifier.replace_tensors(model, state["optimizer"], averages, self.classifier.gather_to_first)
        return model, state

    def broadcast(self, model: State, state: State, averages: State | None) -> tuple[State, State, State | None]:
        state = copy_optimizer_state(state)
        self.classifier.replace_tensors(model, state["optimizer"], averages, self.classifier.make_placeholder)
        model, state, averages = super().broadcast(model, state, averages)
        self.classifier.replace_tensors(model, state["optimizer"], averages, self.classifier.fill_placeholder)
        return model, state, averages

    def take_rows(self, model: State, state: State, averages: State | None) -> State:
        state = copy_optimizer_state(state)
        self.classifier.replace_tensors(model, state["optimizer"], averages, self.classifier.take_rows)
        return state

    def take_tensor_rows(self, key: tuple[Any, ...], value: Any) -> Any:
        _, name_or_index, *_ = key
        is_split = name_or_index in self.classifier.names or name_or_index in self.classifier.indices
        return self.classifier.take_rows(key, value) if is_split and value.ndim else value

    def has_full_model(self) -> bool:
        return False


def build_strategy(recipe: Recipe, model: nn.Module, group: Group, classifier: str | None) -> SingleRank:
    """Return the strategy of a run; `classifier` is the name of the layer that is split in place, or None."""
    if classifier is not None:
        return HybridParallel(recipe, group, model, classifier)
    return SingleRank(recipe, group) if group.ranks == 1 else DataParallel(recipe, group)


def copy_optimizer_state(state: State) -> State:
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
