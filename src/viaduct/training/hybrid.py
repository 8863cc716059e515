"""A classifier of very many classes, sharded over the ranks: each rank has the rows of the weights for some classes.

    shards = Shards(classes, rank, ranks, images_per_rank)
    split_layer(model, "head", shards)            replaces the layer by one of the same name with this rank's rows
    logits = model(images)                        has a row for each image of all ranks, a column for each own class
    SplitLoss(shards, smoothing)(logits, labels)

All other layers are the same on all ranks. In the forward pass every rank gets the features of the whole batch
(all-gather) and computes the logits of its own classes for all images. For the softmax of an image the ranks exchange
their largest logit and three sums. In the backward pass the gradients of the features are summed over the ranks, and
each rank gets those of its own images (reduce-scatter). No weight or gradient of the classifier is sent in a step.

torch's `loss_parallel` (DTensor) has no label smoothing and no mixed labels. The rows are plain tensors, which fused
optimizers need.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, distributed, nn

from viaduct.torch_compat import disable_dynamo
from viaduct.training.metrics import TOP, BatchResults

# torch 2.13 has renamed these functions and warns about the old names.
all_gather: Any = getattr(distributed, "all_gather_single", None) or distributed.all_gather_into_tensor
reduce_scatter: Any = getattr(distributed, "reduce_scatter_single", None) or distributed.reduce_scatter_tensor


class Gather(torch.autograd.Function):
    """All-gather along the first dimension; its backward pass sums the gradient of this rank's part over the ranks.

    Each rank passes equally many rows. DistributedDataParallel divides gradients by the number of ranks, but the loss
    is already the mean over the images of all ranks: the gradient is therefore multiplied by that number.
    """

    @staticmethod
    def forward(ctx: Any, local: Tensor, ranks: int) -> Tensor:
        ctx.ranks = ranks
        gathered = local.new_empty(len(local) * ranks, *local.shape[1:])
        all_gather(gathered, local.contiguous())
        return gathered

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        gradient = gradients[0].to(torch.promote_types(gradients[0].dtype, torch.float32)).contiguous()
        local = gradient.new_empty(len(gradient) // ctx.ranks, *gradient.shape[1:])
        reduce_scatter(local, gradient)
        return local.mul_(ctx.ranks).to(gradients[0].dtype), None


@dataclass(frozen=True)
class Shards:
    """Division of the classes among the ranks. If it leaves a remainder, the first ranks have one class more."""

    classes: int
    rank: int
    ranks: int
    images_per_rank: tuple[int, ...]  # number of each rank's images in one accumulated part of a training step

    def find_class_range(self, rank: int) -> tuple[int, int]:
        """Return the first class of a rank and the one after its last."""
        per_rank, remainder = divmod(self.classes, self.ranks)
        first = rank * per_rank + min(rank, remainder)
        return first, first + per_rank + (rank < remainder)

    @property
    def own_classes(self) -> slice:
        """This rank's classes, as a slice of all classes."""
        return slice(*self.find_class_range(self.rank))

    @property
    def own_class_count(self) -> int:
        """Number of this rank's classes."""
        first, end = self.find_class_range(self.rank)
        return end - first

    def count_images(self, local: Tensor, training: bool) -> tuple[int, ...]:
        """Return how many images each rank has in this pass; in an evaluation all ranks have as many as this one.

        `local` is a tensor with a row for each image of this rank.
        """
        return self.images_per_rank if training else (len(local),) * self.ranks

    def gather(self, local: Tensor, counts: tuple[int, ...]) -> Tensor:
        """Return the rows of all ranks, in the order of the ranks; `counts` has the number of rows of each rank."""
        longest = max(counts)
        padding = longest - len(local)
        padded = F.pad(local, (0, 0) * (local.ndim - 1) + (0, padding)) if padding else local
        gathered: Tensor = Gather.apply(padded, self.ranks)  # type: ignore[no-untyped-call]
        if min(counts) == longest:
            return gathered
        return torch.cat([gathered[rank * longest : rank * longest + count] for rank, count in enumerate(counts)])

    def find_own_images(self, counts: tuple[int, ...]) -> slice:
        """Return the slice of this rank's images among those of all ranks."""
        first = sum(counts[: self.rank])
        return slice(first, first + counts[self.rank])


class SplitLinear(nn.Linear):
    """Dense layer with this rank's rows of the weight; it returns their logits for the images of all ranks."""

    shards: Shards

    @disable_dynamo  # a compiled network calls it between its parts
    def forward(self, input: Tensor) -> Tensor:
        features = self.shards.gather(input, self.shards.count_images(input, self.training))
        return F.linear(features, self.weight, self.bias)


@torch.no_grad()
def split_layer(model: nn.Module, name: str, shards: Shards) -> None:
    """Turn the named dense layer into a SplitLinear with this rank's rows, in place."""
    layer: Any = model.get_submodule(name)
    layer.weight = nn.Parameter(layer.weight[shards.own_classes].clone())
    if layer.bias is not None:
        layer.bias = nn.Parameter(layer.bias[shards.own_classes].clone())
    layer.shards = shards
    layer.__class__ = SplitLinear


class MixedLabels(NamedTuple):
    """Labels of mixup or cutmix: two classes of each image, and the weight of each."""

    labels: Tensor  # N,2
    weights: Tensor  # N,2

    def chunk(self, parts: int) -> list[MixedLabels]:
        return [MixedLabels(*part) for part in zip(self.labels.chunk(parts), self.weights.chunk(parts), strict=True)]


def mix_labels(labels: Tensor, weights: Tensor) -> MixedLabels:
    """Return labels mixed as `mixup.mix` mixes them: each image with its partner in the batch."""
    return MixedLabels(torch.stack([labels, labels.flip(0)], 1), torch.stack([weights, 1 - weights], 1))


class ShardedCrossEntropy(torch.autograd.Function):
    """Cross entropy of each image of all ranks, from the logits of this rank's classes; it is equal on all ranks.

    `logits` has a row for each image and a column for each class of this rank. `labels` and `weights` have one column,
    or two for mixed labels.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, weights: Tensor, smoothing: float, shards: Shards) -> Tensor:
        largest = logits.amax(1)
        distributed.all_reduce(largest, distributed.ReduceOp.MAX)
        shifted = logits - largest[:, None]
        column = labels - shards.own_classes.start  # of the label among this rank's logits
        is_local = (column >= 0) & (column < shards.own_class_count)
        column = torch.where(is_local, column, 0)
        local_weights = torch.where(is_local, weights, 0)
        label_logits = (shifted.gather(1, column) * local_weights).sum(1)
        logit_sums = shifted.sum(1) if smoothing else torch.zeros_like(label_logits)
        exponentials = shifted.exp_()
        sums = torch.stack([exponentials.sum(1), label_logits, logit_sums])
        distributed.all_reduce(sums)
        denominator, label_logits, logit_sums = sums.unbind()
        ctx.save_for_backward(exponentials, denominator, column, local_weights)
        ctx.smoothing, ctx.classes = smoothing, shards.classes
        return denominator.log() - (1 - smoothing) * label_logits - smoothing / shards.classes * logit_sums

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        exponentials, denominator, column, local_weights = ctx.saved_tensors
        result = exponentials * (gradients[0] / denominator)[:, None]
        if ctx.smoothing:
            result -= (gradients[0] * (ctx.smoothing / ctx.classes))[:, None]
        images = torch.arange(len(column), device=column.device)[:, None].expand_as(column)
        at_labels = -(1 - ctx.smoothing) * local_weights * gradients[0][:, None]
        result.index_put_((images, column), at_labels.to(result.dtype), accumulate=True)
        return result, None, None, None, None


class SplitLoss:
    """Softmax cross entropy over the classes of all ranks, as the mean over the images of all ranks."""

    def __init__(self, shards: Shards, smoothing: float, training: bool = True) -> None:
        self.shards, self.smoothing, self.training = shards, smoothing, training

    def __call__(self, logits: Tensor, labels: Tensor | MixedLabels) -> Tensor:
        return self.compute_losses(logits, labels).mean()

    def compute_losses(self, logits: Tensor, labels: Tensor | MixedLabels) -> Tensor:
        """Return the loss of each image of all ranks, from this rank's labels."""
        if not isinstance(labels, MixedLabels):
            labels = MixedLabels(labels[:, None], logits.new_ones(len(labels), 1))
        counts = self.shards.count_images(labels.labels, self.training)
        classes, weights = self.shards.gather(labels.labels, counts), self.shards.gather(labels.weights, counts)
        losses: Tensor = ShardedCrossEntropy.apply(  # type: ignore[no-untyped-call]
            logits, classes, weights, self.smoothing, self.shards
        )
        return losses

    def score_batch(self, logits: Tensor, labels: Tensor, real: int) -> BatchResults:
        """Score this rank's images in an evaluation; all but the first `real` are padding. All ranks call it."""
        own_images = self.shards.find_own_images(self.shards.count_images(labels, training=False))
        losses = self.compute_losses(logits, labels)[own_images][:real]
        best = find_best_classes(logits, self.shards)[own_images][:real]
        return BatchResults(losses.sum(), best[:, 0], (best == labels[:real, None]).sum())


def find_best_classes(logits: Tensor, shards: Shards) -> Tensor:
    """Return the TOP classes with the largest logits of each image, or all if there are fewer, the best one first."""
    top = min(TOP, shards.classes)
    values, classes = logits.topk(min(top, shards.own_class_count))
    padding = (0, top - values.shape[1])
    values, classes = F.pad(values, padding, value=-torch.inf), F.pad(classes + shards.own_classes.start, padding)
    counts = (len(logits),) * shards.ranks
    gathered = [shards.gather(part, counts).view(shards.ranks, len(logits), top) for part in (values, classes)]
    values, classes = (part.transpose(0, 1).flatten(1) for part in gathered)  # image by candidates of all ranks
    return classes.gather(1, values.topk(top).indices)


def count_correct(logits: Tensor, labels: Tensor | MixedLabels, shards: Shards) -> Tensor:
    """Return how many of this rank's images in a training pass have the largest logit at their label.

    The label of a mixed image is the one with more weight.
    """
    if isinstance(labels, MixedLabels):
        first, second = labels.labels.unbind(1)
        labels = torch.where(labels.weights[:, 0] >= labels.weights[:, 1], first, second)
    values, classes = logits.max(1)
    largest = values.clone()
    distributed.all_reduce(largest, distributed.ReduceOp.MAX)
    classes = torch.where(values == largest, classes + shards.own_classes.start, shards.classes).int()
    distributed.all_reduce(classes, distributed.ReduceOp.MIN)  # of equal logits the first class
    return (classes[shards.find_own_images(shards.images_per_rank)] == labels).sum()
