"""Batches of `--data synthetic`: one batch of noise on the device, yielded repeatedly."""

from __future__ import annotations

from collections.abc import Generator

import torch

from viaduct.data.batches import WHOLE_BATCH, Batch, BatchStream, RankShare
from viaduct.data.synthetic import SyntheticSplit

MEAN, DEVIATION, LOWEST, HIGHEST = 127.0, 60.0, 7.0, 247.0  # of pixels, as in TensorFlow's official models


class SyntheticBatches(BatchStream):
    """Batches that are all made of one batch of noise; they do not depend on a seed."""

    def __init__(
        self, split: SyntheticSplit, *, device: torch.device, train: bool, share: RankShare = WHOLE_BATCH
    ) -> None:
        super().__init__()
        source = split.source
        self.count = len(split)
        self.global_batch, positions = share.split_batch(source.get_batch_size(train), train)
        self.steps_per_epoch = self.count // self.global_batch if train else -(-self.count // self.global_batch)
        generator = torch.Generator().manual_seed(0)
        shape = (self.global_batch, 3, source.size, source.size)
        noise = torch.nn.init.trunc_normal_(torch.empty(shape), MEAN, DEVIATION, LOWEST, HIGHEST, generator=generator)
        mean, scale = (torch.tensor(values).view(1, 3, 1, 1) for values in source.get_normalisation())
        self._images = ((noise - mean) * scale)[positions].to(device, memory_format=torch.channels_last)
        self._index = torch.from_numpy(positions).to(device)
        self._all_labels = torch.from_numpy(split.labels if not train else split.labels[: self.global_batch]).to(device)
        self._train, self._first_batch = train, self._make_batch(0)

    def _iterate(self, epoch: int, start: int) -> Generator[Batch, None, None]:
        # In training each batch is the same object, so the device does no work for it.
        steps = range(start, self.steps_per_epoch)
        return (self._first_batch if self._train else self._make_batch(step) for step in steps)

    def _make_batch(self, step: int) -> Batch:
        index = self._index + step * self.global_batch
        return Batch(self._images, self._all_labels[index % len(self._all_labels)], None, index)
