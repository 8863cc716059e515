"""Noise instead of images: `--data synthetic`, for every recipe.

It shows what training costs when reading costs nothing: one batch of noise lies on the device and is used again and
again. An epoch is as long as that of the recipe's own data; an evaluation looks at four batches, since its accuracy
means nothing. Nothing here imports torch.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np

from viaduct.data.source import Labels, Pixels, Source

SYNTHETIC = Path("synthetic")
EVALUATED_BATCHES = 4


class SyntheticSplit:
    """Split of as many images of noise as an epoch needs; labels repeat with every batch, as the images do."""

    def __init__(self, source: Source, count: int, batch: int) -> None:
        self.source, self.count, self.batch = source, count, batch

    def __len__(self) -> int:
        return self.count

    @cached_property
    def labels(self) -> Labels:
        # As the references do: uniform over all but the last class.
        drawn = np.random.default_rng(0).integers(0, max(self.source.classes - 1, 1), self.batch)
        return np.resize(drawn, self.count)

    def read_image(self, index: int) -> Pixels:
        """Return noise for display; it is not the noise that a network is trained on."""
        side = self.source.size
        return np.random.default_rng(index).integers(0, 256, (side, side, 3), dtype=np.uint8)


class SyntheticSet:
    """Both splits of a recipe's noise."""

    def __init__(self, source: Source) -> None:
        evaluated = source.eval_batch or source.global_batch
        self.train = SyntheticSplit(source, max(source.usual_count, source.global_batch), source.global_batch)
        self.validation = SyntheticSplit(source, EVALUATED_BATCHES * evaluated, evaluated)
        self.names = tuple(map(str, range(source.classes)))


def stored_data(record: dict[str, object]) -> Path | None:
    """Return the data that a run's recipe.json names; runs on noise have stored a path that never existed."""
    stored = record.get("data")
    if not isinstance(stored, str) or not stored:
        return None
    path = Path(stored)
    return SYNTHETIC if path.name == SYNTHETIC.name and not path.exists() else path
