"""A recipe of 23 classes, in fp64, for a classifier that is shared out over ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torch import Tensor, nn

from viaduct.recipes import Arrays, Checkpoint, Evaluation, ImageSet, Log, Parallel, Precision, Recipe, Sgd, Split

CLASSES, BATCH = 23, 12  # 23 = 8 + 8 + 7 over three ranks


def make_split(count: int, seed: int, classes: int) -> Split:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, count)
    colours = np.random.default_rng(7).integers(40, 216, (classes, 3))
    noise = rng.integers(-30, 30, (count, 8, 8, 3))
    return Split((colours[labels][:, None, None] + noise).astype(np.uint8), labels.astype(np.int64))


def make_images(path: Path | None) -> ImageSet:
    return ImageSet(make_split(60, 1, CLASSES), make_split(31, 2, CLASSES), tuple(map(str, range(CLASSES))))


class DoubleNetwork(nn.Module):
    """Network in fp64, so that the order in which ranks add hardly matters."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 6, 3, 2, bias=False), nn.BatchNorm2d(6), nn.Tanh(), nn.AdaptiveAvgPool2d(1)
        )
        self.head = nn.Linear(6, classes)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x.double()).flatten(1))
        return logits


HYBRID = Parallel(mode="hybrid", sync_norm=True, hang_seconds=60)
FEW = Recipe(
    model=DoubleNetwork,
    data=Arrays(global_batch=BATCH, size=8, classes=CLASSES, flip=True, make=make_images),
    optimizer=Sgd(lr=0.5, momentum=0.9, weight_decay=1e-3),
    precision=Precision("fp32"),
    steps=12,
    parallel=HYBRID,
    evaluation=Evaluation(every_epochs=1),
    checkpoint=Checkpoint(every_minutes=0, every_steps=6),
    log=Log(every_steps=3),
)
