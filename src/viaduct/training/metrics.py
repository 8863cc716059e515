"""How good a network is on a set of pictures: each picture counts exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from viaduct.data.batches import Stream
from viaduct.training.distributed import ALONE, Group
from viaduct.training.optim import Loss

Numbers = npt.NDArray[np.int64]


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
    group: Group = ALONE,
) -> Score | None:
    """The score over all pictures; None if `after_batch`, told how many are done, asks to give up.

    Of several ranks each looks at its share, and all get the score of the whole: sums are added up, not averages.
    """
    began = time.monotonic()
    seen = Seen()
    for done, batch in enumerate(batches.epoch(0), start=1):
        # Padding stands at the end of the last batch only, with the last ranks.
        before = ((done - 1) * group.ranks + group.rank) * len(batch.labels)
        real = max(0, min(len(batch.labels), batches.count - before))
        logits, truth = forward(batch.images)[:real], batch.labels[:real]
        if real:
            seen.add(logits, truth, batch.index[:real], loss(logits, truth) * real, classes)
        if not after_batch(done, batches.steps_per_epoch):
            return None
    whole = joined(group.gather(seen.counted()))
    confusion = np.bincount(whole.true * classes + whole.predicted, minlength=classes * classes)
    count = len(whole.true)
    figures = whole.loss / count, whole.hits / count
    result = score(confusion.reshape(classes, classes), *figures, whole.predicted.tolist())
    return replace(result, seconds=time.monotonic() - began)


class Counted(NamedTuple):
    """What is known of some pictures: the numbers of the pictures, their classes, and sums over them."""

    pictures: Numbers
    true: Numbers
    predicted: Numbers
    loss: float
    hits: int  # the class is among the first five


class Seen:
    """What one rank has seen so far, left on the device until the end."""

    def __init__(self) -> None:
        self.losses: list[Tensor] = []
        self.hits: list[Tensor] = []
        self.rows: list[Tensor] = []

    def add(self, logits: Tensor, truth: Tensor, pictures: Tensor, loss: Tensor, classes: int) -> None:
        self.losses.append(loss)
        self.hits.append((logits.topk(min(5, classes)).indices == truth[:, None]).sum())
        self.rows.append(torch.stack([pictures, truth, logits.argmax(1)]))

    def counted(self) -> Counted:
        if not self.rows:  # fewer pictures than ranks
            none = np.empty(0, np.int64)
            return Counted(none, none, none, 0.0, 0)
        loss, hits = float(torch.stack(self.losses).cpu().double().sum()), int(torch.stack(self.hits).sum())
        pictures, true, predicted = torch.cat(self.rows, 1).cpu().numpy()
        return Counted(pictures, true, predicted, loss, hits)


def joined(parts: list[Counted]) -> Counted:
    """Over all ranks, in the order of the pictures."""
    pictures, true, predicted = (np.concatenate([part[row] for part in parts]) for row in range(3))
    order = np.argsort(pictures, kind="stable")
    loss, hits = sum(part.loss for part in parts), sum(part.hits for part in parts)
    return Counted(pictures[order], true[order], predicted[order], loss, hits)


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
