"""How good a network is on a set of pictures: each picture counts exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from viaduct.data.batches import Stream
from viaduct.training.optim import Loss


@dataclass(frozen=True)
class Score:
    """The result of one evaluation. Fractions run from 0 to 1; precision, recall and F1 are means over classes."""

    count: int
    loss: float
    top1: float
    top5: float
    precision: float
    recall: float
    f1: float
    confusion: list[list[int]] = field(repr=False)  # rows: true class; columns: predicted
    predictions: list[int] = field(repr=False)  # one per picture, in the order of the split
    seconds: float = 0.0

    def headline(self) -> dict[str, Any]:
        return {
            name: getattr(self, name)
            for name in ("count", "loss", "top1", "top5", "precision", "recall", "f1", "seconds")
        }


@torch.no_grad()
def evaluate(
    forward: Callable[[Tensor], Tensor],
    batches: Stream,
    classes: int,
    loss: Loss,
    after_batch: Callable[[int, int], bool] = lambda done, total: True,
) -> Score | None:
    """The score over all pictures; None if `after_batch`, told how many are done, asks to give up."""
    began = time.monotonic()
    losses, hits, predictions, labels, seen = [], [], [], [], 0
    for done, batch in enumerate(batches.epoch(0), start=1):
        # Padding stands at the end of the last batch only.
        real = min(len(batch.labels), batches.count - seen)
        logits, truth = forward(batch.images)[:real], batch.labels[:real]
        losses.append(loss(logits, truth) * real)
        hits.append((logits.topk(min(5, classes)).indices == truth[:, None]).sum())
        predictions.append(logits.argmax(1))
        labels.append(truth)
        seen += real
        if not after_batch(done, batches.steps_per_epoch):
            return None
    predicted, true = torch.cat(predictions).cpu().numpy(), torch.cat(labels).cpu().numpy()
    confusion = np.bincount(true * classes + predicted, minlength=classes * classes).reshape(classes, classes)
    mean_loss = float(torch.stack(losses).cpu().double().sum()) / seen
    result = score(confusion, mean_loss, int(torch.stack(hits).sum()) / seen, predicted.tolist())
    return replace(result, seconds=time.monotonic() - began)


def score(confusion: np.ndarray[Any, Any], loss: float, top5: float, predictions: list[int]) -> Score:
    """Figures from the confusion matrix; a class never seen or never predicted counts 0, as scikit-learn does."""
    right = np.diag(confusion).astype(float)
    per_true, per_predicted = confusion.sum(1), confusion.sum(0)
    recall = right / np.maximum(per_true, 1)
    precision = right / np.maximum(per_predicted, 1)
    f1 = 2 * right / np.maximum(per_true + per_predicted, 1)
    present = (per_true + per_predicted) > 0
    return Score(
        count=int(confusion.sum()),
        loss=loss,
        top1=float(right.sum() / confusion.sum()),
        top5=top5,
        precision=float(precision[present].mean()),
        recall=float(recall[present].mean()),
        f1=float(f1[present].mean()),
        confusion=confusion.tolist(),
        predictions=predictions,
    )
