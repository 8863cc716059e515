"""Noise instead of images: `--data synthetic`, for every recipe.

This measures training without the cost of reading images: one batch of noise on the device is used for every step. An
epoch has the usual number of images of the recipe's data, or one batch if that is more; an evaluation has four batches.
Nothing here imports torch.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np

from viaduct.data.source import Labels, Pixels, Source

SYNTHETIC = Path("synthetic")
EVALUATED_BATCHES = 4


class SyntheticSplit:
    """Split of `count` images of noise; images and labels repeat after `batch` images."""

    def __init__(self, source: Source, count: int, batch: int) -> None:
        self.source, self.count, self.batch = source, count, batch

    def __len__(self) -> int:
        return self.count

    @cached_property
    def labels(self) -> Labels:
        # Uniform over all classes except the last, as in TensorFlow's official models.
        drawn = np.random.default_rng(0).integers(0, max(self.source.classes - 1, 1), self.batch)
        return np.resize(drawn, self.count)

    def read_image(self, index: int) -> Pixels:
        """Return noise for display, different from the noise of the batches."""
        side = self.source.size
        return np.random.default_rng(index).integers(0, 256, (side, side, 3), dtype=np.uint8)


class SyntheticSet:
    """A `Dataset` of noise."""

    def __init__(self, source: Source) -> None:
        train_batch, evaluation_batch = source.get_batch_size(train=True), source.get_batch_size(train=False)
        self.train = SyntheticSplit(source, max(source.usual_image_count, train_batch), train_batch)
        self.validation = SyntheticSplit(source, EVALUATED_BATCHES * evaluation_batch, evaluation_batch)
        self.names = tuple(map(str, range(source.classes)))


def get_stored_data_path(record: dict[str, object]) -> Path | None:
    """Return the data path in a run's recipe.json; SYNTHETIC if the run trained on noise."""
    stored = record.get("data")
    if not isinstance(stored, str) or not stored:
        return None
    path = Path(stored)
    # Older versions stored an absolute path for noise.
    return SYNTHETIC if path.name == SYNTHETIC.name and not path.exists() else path
