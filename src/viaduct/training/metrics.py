"""Scores a network on a set of images: each image counts exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from viaduct.data.batches import BatchStream
from viaduct.errors import BadValue, MetricFails
from viaduct.run_files import EVALUATION_FIELDS
from viaduct.training.distributed import ALONE, Group
from viaduct.training.messages import sendable
from viaduct.training.optim import Loss
from viaduct.training.recipe_code import explain_part_errors
from viaduct.typed_fields import show_value

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Metric = Callable[[Tensor, Tensor], Any]  # of a recipe: returns a number from the logits and labels of all images
NO_LOGITS: Floats = np.empty((0, 0), np.float32)  # in place of the logits if a recipe has no metrics of its own
TOP = 5  # an image counts for top5 if the logit of its class is among the TOP largest
MAX_CONFUSION_CLASSES = 2000  # a confusion matrix of so many classes has 4 million fields


@dataclass(frozen=True)
class Score:
    """The result of one evaluation. Scores are from 0 to 1; precision, recall and F1 are means over classes."""

    count: int  # number of images
    loss: float
    top1: float
    top5: float
    precision: float
    recall: float
    f1: float
    # Rows are true classes, columns predicted ones; None for more than MAX_CONFUSION_CLASSES.
    confusion: list[list[int]] | None = field(repr=False)
    predictions: list[int] = field(repr=False)  # class of each image, in the order of the dataset
    seconds: float = 0.0
    recipe_metrics: dict[str, float] = field(default_factory=dict)  # the recipe's own metrics

    def to_record(self) -> dict[str, Any]:
        """Return the figures that metrics.jsonl and checkpoints record: name -> value, the count and the scores."""
        return {name: getattr(self, name) for name in EVALUATION_FIELDS} | self.recipe_metrics


class BatchResults(NamedTuple):
    """Results of a batch, on the device."""

    loss: Tensor  # sum of the images' losses
    predicted: Tensor  # predicted class of each image
    top5_hits: Tensor  # number of images that count for top5


# Function that scores a batch from its logits, its labels, and `real`: how many of its images are no padding.
BatchScorer = Callable[[Tensor, Tensor, int], BatchResults]


def build_scorer(loss: Loss, classes: int) -> BatchScorer:
    """Return the scorer of a rank that has the logits of all classes."""

    def score_batch(logits: Tensor, labels: Tensor, real: int) -> BatchResults:
        logits, truth = logits[:real], labels[:real]
        hits = (logits.topk(min(TOP, classes)).indices == truth[:, None]).sum()
        return BatchResults(loss(logits, truth) * real, logits.argmax(1), hits)

    return score_batch


@torch.no_grad()
def evaluate(
    forward: Callable[[Tensor], Tensor],
    batches: BatchStream,
    classes: int,
    loss: Loss,
    after_batch: Callable[[int, int], bool] = lambda done, total: True,
    group: Group = ALONE,
    score_batch: BatchScorer | None = None,
    recipe_metrics: Mapping[str, Metric] | None = None,
) -> Score | None:
    """Return the score over all images; None if `after_batch(batches done, batches in all)` returns False.

    With several ranks each scores its images, and all return the score over all images. `score_batch` is given if a
    rank has the logits of some classes only. `recipe_metrics` are the recipe's own metrics: each gets the logits and
    labels of all images, on the CPU and in the order of the dataset.
    """
    score_batch = score_batch or build_scorer(loss, classes)
    start = time.monotonic()
    results = RankResults(keep_logits=bool(recipe_metrics))
    for done, batch in enumerate(batches.epoch(0), start=1):
        # The ranks take batches in turns. Padding fills up the last batches, so that all ranks have equally many.
        position = ((done - 1) * group.ranks + group.rank) * len(batch.labels)  # of the batch's first image
        real = max(0, min(len(batch.labels), batches.count - position))  # images that are no padding
        logits = forward(batch.images)
        scored = score_batch(logits, batch.labels, real)
        if real:
            results.add(scored, batch.labels[:real], batch.index[:real], logits[:real])
        if not after_batch(done, batches.steps_per_epoch):
            return None
    merged = merge_results(group.gather(results.to_host()))
    metric_values = compute_recipe_metrics(recipe_metrics or {}, merged)
    return replace(compute_score(merged, classes), seconds=time.monotonic() - start, recipe_metrics=metric_values)


def compute_recipe_metrics(metrics: Mapping[str, Metric], results: ImageResults) -> dict[str, float]:
    """Return the values of the recipe's own metrics; raise MetricFails if one fails or returns no number."""
    values = {}
    for name, metric in metrics.items():
        logits, labels = torch.from_numpy(results.logits), torch.from_numpy(results.true)
        try:
            with explain_part_errors(f"metric {name!r}", metric):
                value = metric(logits, labels)
        except BadValue as error:
            raise MetricFails(error.message, *error.hints) from error
        is_scalar = isinstance(value, Tensor) and value.numel() == 1
        if not is_scalar and not isinstance(value, float | int | np.floating | np.integer):
            shown = f"{type(value).__name__} ({show_value(value)})"
            hint = "It gets the logits and labels of all images and must return one number."
            raise MetricFails(f"the recipe's metric {name!r} returned a {shown}, not a number.", hint)
        values[name] = float(value)
    return values


@sendable
class ImageResults(NamedTuple):
    """Results of some images on the host."""

    images: Integers  # positions of the images in the dataset
    true: Integers  # class of each image
    predicted: Integers
    loss: float  # sum of the images' losses
    top5_hits: int  # number of images that count for top5
    logits: Floats = NO_LOGITS  # of each image, if the recipe has metrics of its own


class RankResults:
    """Collects the results of one rank's batches; all but logits stay on the device until `to_host`."""

    def __init__(self, keep_logits: bool) -> None:
        self.keep_logits = keep_logits
        self.logits: list[Tensor] = []
        self.losses: list[Tensor] = []
        self.top5_hits: list[Tensor] = []
        self.rows: list[Tensor] = []  # of each batch: positions, true and predicted classes

    def add(self, batch: BatchResults, truth: Tensor, images: Tensor, logits: Tensor) -> None:
        if self.keep_logits:
            self.logits.append(logits.float().cpu())
        self.losses.append(batch.loss)
        self.top5_hits.append(batch.top5_hits)
        self.rows.append(torch.stack([images, truth, batch.predicted]))

    def to_host(self) -> ImageResults:
        """Return the collected results on the host."""
        if not self.rows:  # fewer images than ranks
            empty = np.empty(0, np.int64)
            return ImageResults(empty, empty, empty, 0.0, 0, NO_LOGITS)
        loss, hits = float(torch.stack(self.losses).cpu().double().sum()), int(torch.stack(self.top5_hits).sum())
        images, true, predicted = torch.cat(self.rows, 1).cpu().numpy()
        logits = torch.cat(self.logits).numpy() if self.logits else NO_LOGITS
        return ImageResults(images, true, predicted, loss, hits, logits)


def merge_results(parts: list[ImageResults]) -> ImageResults:
    """Return the results of all ranks, in the order of the images."""
    columns = zip(*((part.images, part.true, part.predicted) for part in parts), strict=True)
    images, true, predicted = map(np.concatenate, columns)
    order = np.argsort(images, kind="stable")
    loss, hits = sum(part.loss for part in parts), sum(part.top5_hits for part in parts)
    logits_of_ranks = [part.logits for part in parts if len(part.logits)]
    logits = np.concatenate(logits_of_ranks)[order] if logits_of_ranks else NO_LOGITS
    return ImageResults(images[order], true[order], predicted[order], loss, hits, logits)


def compute_score(results: ImageResults, classes: int) -> Score:
    """Return the score of some images.

    Precision, recall and F1 are means over the classes that occur among labels or predictions. For a class that occurs
    in only one of the two they are 0, as in scikit-learn.
    """
    label_sets = [results.true[results.true == results.predicted], results.true, results.predicted]
    right, per_true, per_predicted = (np.bincount(labels, minlength=classes) for labels in label_sets)
    recall = right / np.maximum(per_true, 1)
    precision = right / np.maximum(per_predicted, 1)
    f1 = 2 * right / np.maximum(per_true + per_predicted, 1)
    present = (per_true + per_predicted) > 0
    confusion = None
    if classes <= MAX_CONFUSION_CLASSES:
        pairs = np.bincount(results.true * classes + results.predicted, minlength=classes * classes)
        confusion = pairs.reshape(classes, classes).tolist()
    count = len(results.true)
    return Score(
        count=count,
        loss=results.loss / count,
        top1=float(right.sum() / count),
        top5=results.top5_hits / count,
        precision=float(precision[present].mean()),
        recall=float(recall[present].mean()),
        f1=float(f1[present].mean()),
        confusion=confusion,
        predictions=results.predicted.tolist(),
    )
