"""How a run is spread over ranks: one rank, whole networks on all ranks (data), or a split classifier (hybrid).

A strategy has one interface; the training step, evaluations and checkpoints ask it and do not know which one it is.

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
from viaduct.training.hybrid import Shards, SplitClassifier, SplitLinear, SplitLoss, mixed_labels
from viaduct.training.hybrid import count_correct as count_correct_of_shards
from viaduct.training.metrics import Judge
from viaduct.training.mixup import label_weights, mix, mix_images
from viaduct.training.optim import build_loss, smoothing_of
from viaduct.training.optimizer_support import OptimizerSupport

State = dict[str, Any]


class SingleRank:
    """Strategy of a run with one rank; also the base of the other strategies."""

    name = "data"  # as the summary of a run calls it
    capture_obstacle: str | None = None  # why no step can be captured
    judge: Judge | None = None  # scores logits in an evaluation where the rank does not have all of them

    def __init__(self, recipe: Recipe, group: Group) -> None:
        self.recipe, self.group = recipe, group
        self.share = build_share(recipe, group)
        self.positions = self.share.of(recipe.data.global_batch, train=True)[1]

    # A step

    def wrap_network(self, network: nn.Module) -> nn.Module:
        """Return a wrapper that averages gradients over the ranks, with the network's weights; else the network."""
        return network

    def build_loss(self) -> Callable[[Tensor, Any], Tensor]:
        """Return the training loss."""
        return build_loss(self.recipe, training=True)

    @property
    def loss_weight(self) -> float:
        """Factor of this rank's loss in its backward pass."""
        return self.weight

    @property
    def weight(self) -> float:
        """Weight of this rank's loss in the mean over the ranks: above 1 where it has more images than others."""
        return len(self.positions) * self.group.ranks / self.recipe.data.global_batch

    def mix_batch(self, images: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, Any]:
        """Return images and labels mixed by mixup's weights, which are on the device."""
        return mix(images, labels, weights, self.recipe.data.classes)

    @property
    def counts_top5(self) -> bool:
        """Return True if correct answers among the first five are counted in training, too."""
        return "top5" in self.recipe.log.tensorboard_names

    def count_correct(self, logits: Tensor, labels: Any) -> Tensor:
        """Return how many images are classified correctly; with `counts_top5` also among the first five."""
        correct = count_correct(logits, labels)
        return torch.stack([correct, count_correct_top5(logits, labels)]) if self.counts_top5 else correct[None]

    def clip_gradients(self, parameters: list[nn.Parameter], most: float) -> None:
        """Scale the gradients so that their common norm is at most `most`."""
        nn.utils.clip_grad_norm_(parameters, most)

    def agree_on_finite(self, finite: bool) -> bool:
        """Return True if the gradients are finite on all ranks; averaged gradients are the same everywhere."""
        return finite

    def reduce_results(self, losses: Tensor, hits: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean losses and summed hits of all ranks."""
        return losses, hits

    def full_norms(self, parameters: list[Tensor], norms: Tensor) -> Tensor:
        """Return the 2-norms of full layers from those of what this rank has."""
        return norms

    def attach_optimizer(self, support: OptimizerSupport) -> None:
        """Tell the strategy about the optimizer, and the optimizer about split layers."""

    # Checkpoints, which hold full tensors whatever the strategy

    def full_shapes(self, model: nn.Module) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the tensors that a checkpoint holds."""
        return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}

    def count_missing_parameters(self) -> int:
        """Return how many parameters only other ranks have."""
        return 0

    def gather_full(self, model: State, state: State, averages: State | None) -> tuple[State, State]:
        """Return model and optimizer state with full tensors on rank 0. All ranks call it."""
        return model, state

    def broadcast(self, model: State, state: State, averages: State | None) -> tuple[State, State, State | None]:
        """Return rank 0's tensors and state on every rank. All ranks call it."""
        return model, state, averages

    def take_rows(self, model: State, state: State, averages: State | None) -> State:
        """Reduce full tensors to this rank's rows: `model` and `averages` in place; returns the state."""
        return state

    def take_rows_of(self, key: tuple[Any, ...], value: Any) -> Any:
        """Return this rank's rows of one full tensor."""
        return value

    def has_full_model(self) -> bool:
        """Return True if this rank has every parameter."""
        return True


class DataParallel(SingleRank):
    """The whole network on every rank, gradients averaged by DistributedDataParallel."""

    capture_obstacle = "several ranks take part"

    def wrap_network(self, network: nn.Module) -> nn.Module:
        return wrap_network(network, self.recipe.parallel, self.recipe.deterministic, self.group, (SplitLinear,))

    @property
    def loss_weight(self) -> float:
        return self.weight * (self.group.ranks if self.recipe.parallel.reduce == "sum" else 1)

    def reduce_results(self, losses: Tensor, hits: Tensor) -> tuple[Tensor, Tensor]:
        both = torch.cat([losses * (self.weight / self.group.ranks), hits.double()])
        self.group.add_up(both)
        return both[: len(losses)], both[len(losses) :]

    def broadcast(self, model: State, state: State, averages: State | None) -> tuple[State, State, State | None]:
        return self.group.from_first((model, state, averages))


class HybridParallel(DataParallel):
    """The classifier split over the ranks by classes, everything else data parallel."""

    name = "hybrid"
    counts_top5 = False

    def __init__(self, recipe: Recipe, group: Group, model: nn.Module, classifier: str) -> None:
        super().__init__(recipe, group)
        others = [replace(self.share, rank=rank) for rank in range(group.ranks)]
        counts = [len(share.of(recipe.data.global_batch, train=True)[1]) // recipe.accumulate for share in others]
        self.shards = Shards(recipe.data.classes, group.rank, group.ranks, tuple(counts))
        self.classifier = SplitClassifier(model, classifier, self.shards)
        self.judge = SplitLoss(self.shards, smoothing_of(recipe, training=False), training=False).judge

    def build_loss(self) -> Callable[[Tensor, Any], Tensor]:
        return SplitLoss(self.shards, smoothing_of(self.recipe, training=True))

    @property
    def loss_weight(self) -> float:
        return 1.0  # the loss is that of the whole batch already

    def mix_batch(self, images: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, Any]:
        return mix_images(images, weights), mixed_labels(labels, label_weights(weights))

    def count_correct(self, logits: Tensor, labels: Any) -> Tensor:
        return count_correct_of_shards(logits, labels, self.shards)[None]

    def clip_gradients(self, parameters: list[nn.Parameter], most: float) -> None:
        self.classifier.clip_gradients(parameters, most)

    def agree_on_finite(self, finite: bool) -> bool:
        return self.classifier.agree_on_finite(finite)

    def full_norms(self, parameters: list[Tensor], norms: Tensor) -> Tensor:
        return self.classifier.full_norms(parameters, norms)

    def attach_optimizer(self, support: OptimizerSupport) -> None:
        self.classifier.find_indices(support.optimizer)
        support.use_full_norms(self.full_norms)

    def full_shapes(self, model: nn.Module) -> dict[str, tuple[int, ...]]:
        shapes = super().full_shapes(model)
        return shapes | {name: (self.recipe.data.classes, *shapes[name][1:]) for name in self.classifier.names}

    def count_missing_parameters(self) -> int:
        return self.classifier.count_missing()

    def gather_full(self, model: State, state: State, averages: State | None) -> tuple[State, State]:
        model, state = dict(model), copy_optimizer_state(state)
        self.classifier.gather(model, state["optimizer"], averages)
        return model, state

    def broadcast(self, model: State, state: State, averages: State | None) -> tuple[State, State, State | None]:
        state = copy_optimizer_state(state)
        self.classifier.pack(model, state["optimizer"], averages)
        model, state, averages = super().broadcast(model, state, averages)
        self.classifier.unpack(model, state["optimizer"], averages)
        return model, state, averages

    def take_rows(self, model: State, state: State, averages: State | None) -> State:
        state = copy_optimizer_state(state)
        self.classifier.take_rows(model, state["optimizer"], averages)
        return state

    def take_rows_of(self, key: tuple[Any, ...], value: Any) -> Any:
        is_split = key[1] in self.classifier.names or key[1] in self.classifier.indices
        return self.classifier.keep(key, value) if is_split and value.ndim else value

    def has_full_model(self) -> bool:
        return False


def build_strategy(recipe: Recipe, model: nn.Module, group: Group, classifier: str | None) -> SingleRank:
    """Return the strategy of a run; `classifier` names the layer that is split in place, None for none."""
    if classifier is not None:
        return HybridParallel(recipe, group, model, classifier)
    return SingleRank(recipe, group) if group.ranks == 1 else DataParallel(recipe, group)


def build_share(recipe: Recipe, group: Group) -> Share:
    """Return which samples of a global batch this rank has."""
    return Share(group.rank, group.ranks, recipe.accumulate, recipe.mixes_images, group.local_ranks)


def copy_optimizer_state(state: State) -> State:
    """Return a state whose optimizer entries may be replaced."""
    optimizer = state["optimizer"]
    entries = {index: dict(entry) for index, entry in optimizer["state"].items()}
    return {**state, "optimizer": {**optimizer, "state": entries}}


def count_correct(logits: Tensor, labels: Tensor) -> Tensor:
    """Return how many images have the largest logit at their label, or with mixup at the stronger of their two."""
    strongest = labels if labels.ndim == 1 else labels.argmax(1)
    return (logits.argmax(1) == strongest).sum()


def count_correct_top5(logits: Tensor, labels: Tensor) -> Tensor:
    """Return how many images have their label among the five largest logits; with mixup the stronger of two."""
    strongest = labels if labels.ndim == 1 else labels.argmax(1)
    return (logits.topk(min(5, logits.shape[1])).indices == strongest[:, None]).sum()
