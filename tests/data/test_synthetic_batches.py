"""Batches of noise: the same one in training, every image once in an evaluation."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from viaduct.data.batches import RankShare
from viaduct.data.preprocess import get_normalisation
from viaduct.data.records import Records
from viaduct.data.synthetic import SYNTHETIC

RECORDS = Records(global_batch=8, size=32, classes=4)


CPU = torch.device("cpu")


@pytest.mark.parametrize("network", ["official", "v15", "resnext", "amoebanet"])
def test_all_batches_are_the_same_noise(network: str) -> None:
    records = replace(RECORDS, preprocess=network)
    with records.open_batches(records.open_images(SYNTHETIC).train, device=CPU, train=True, seed=1) as made:
        assert (made.count, made.steps_per_epoch, made.skipped) == (1_281_167, 160_145, [])
        iterator = made.epoch(0)
        first, second = next(iterator), next(iterator)
        assert len(list(made.epoch(3, start=160_140))) == 5
    assert first is second
    assert first.images.shape == (8, 3, 32, 32)
    assert first.images.is_contiguous(memory_format=torch.channels_last)
    assert set(first.labels.tolist()) <= {0, 1, 2}
    mean, scale = (torch.from_numpy(values).view(1, 3, 1, 1) for values in get_normalisation(network))
    seen = first.images / scale + mean
    assert 6.9 < seen.min() < seen.max() < 247.1


@pytest.mark.parametrize("ranks", [1, 4])
def test_an_evaluation_sees_every_image_once_with_its_label(ranks: int) -> None:
    records = replace(RECORDS, eval_batch=7)
    split = records.open_images(SYNTHETIC).validation
    found = []
    for rank in range(ranks):
        share = RankShare(rank, ranks) if ranks > 1 else None
        with records.open_batches(split, device=CPU, train=False, seed=1, share=share) as made:
            for batch in made.epoch(0):
                found += list(zip(batch.index.tolist(), batch.labels.tolist(), strict=True))
    seen = dict(pair for pair in found if pair[0] < len(split))
    assert [seen[index] for index in range(len(split))] == split.labels.tolist()
