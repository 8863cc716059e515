"""Small classes are used more often, epochs keep their length, and the order is a function of seed and epoch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from viaduct.data.balance import describe_balance, draw_balanced_order
from viaduct.data.batches import Batches
from viaduct.data.order import draw_permutation
from viaduct.data.record_batches import RecordBatches
from viaduct.data.records import Records
from viaduct.data.source import Arrays, ImageSet, Split
from viaduct.errors import BadValue

from .record_files import write_split

SIZES = {2: 900, 3: 90, 7: 9, 8: 1}
LABELS = np.random.default_rng(0).permutation(np.repeat(list(SIZES), list(SIZES.values()))).astype(np.int64)


def count_labels(order: np.ndarray) -> dict[int, int]:
    return dict(zip(*(part.tolist() for part in np.unique(LABELS[order], return_counts=True)), strict=True))


def test_without_balance_the_order_is_unchanged() -> None:
    assert np.array_equal(draw_balanced_order(LABELS, 0.0, 5, 3), draw_permutation(5, 3, 1000))


def test_at_strength_one_every_class_is_used_equally_often() -> None:
    for epoch in range(5):
        order = draw_balanced_order(LABELS, 1.0, 5, epoch)
        assert len(order) == 1000
        assert all(abs(count - 250) <= 1 for count in count_labels(order).values())


def test_at_strength_one_half_shares_follow_the_square_root() -> None:
    roots = {label: size**0.5 for label, size in SIZES.items()}
    order = draw_balanced_order(LABELS, 0.5, 5, 0)
    for label, count in count_labels(order).items():
        assert abs(count - 1000 * roots[label] / sum(roots.values())) <= 1


def test_within_a_class_no_image_is_seen_more_than_once_more_than_another() -> None:
    times = np.bincount(draw_balanced_order(LABELS, 1.0, 5, 0), minlength=1000)
    for label in SIZES:
        mine = times[label == LABELS]
        assert mine.max() - mine.min() <= 1


def test_epochs_use_different_images_of_a_large_class() -> None:
    orders = [draw_balanced_order(LABELS, 1.0, 5, epoch) for epoch in range(30)]
    assert len(np.unique(np.concatenate(orders))) == 1000
    assert len(np.unique(orders[0])) < 400


def test_the_order_is_a_function_of_seed_and_epoch_and_is_shuffled() -> None:
    order = draw_balanced_order(LABELS, 1.0, 5, 3)
    assert np.array_equal(order, draw_balanced_order(LABELS.copy(), 1.0, 5, 3))
    assert not np.array_equal(order, draw_balanced_order(LABELS, 1.0, 5, 4))
    assert not np.array_equal(order, draw_balanced_order(LABELS, 1.0, 6, 3))
    halves = LABELS[order].reshape(2, -1)
    assert all(abs((half == 8).sum() - 125) < 40 for half in halves)


def test_even_classes_stay_as_they_are() -> None:
    labels = np.arange(60, dtype=np.int64) % 3
    assert sorted(draw_balanced_order(labels, 1.0, 1, 1).tolist()) == list(range(60))


@pytest.mark.parametrize("wrong", [-0.1, 1.5, "much", True])
def test_a_strength_out_of_range_is_named(wrong: object) -> None:
    with pytest.raises(BadValue, match=r"data.balance is .*; it must be (from 0 to 1|a number)"):
        Records(global_batch=1, size=8, balance=wrong)  # type: ignore[arg-type]


def test_balancing_is_reported() -> None:
    output = describe_balance(LABELS, 1.0, {7: "owl"})
    assert output.startswith(
        "balance 1: images of a class → seen in an epoch: class 8: 1 → 250 (x250.00), owl: 9 → 250"
    )
    assert "1 → 5.5 (x5.50)" in describe_balance(np.array([0] + [1] * 10), 1.0, {})
    many = describe_balance(np.repeat(np.arange(100), np.arange(1, 101)), 0.5, {})
    assert many.count("(x") == 6
    assert "…" in many


def test_batches_of_records_are_balanced_and_resumed_exactly(
    tmp_path: Path, device: torch.device, capsys: pytest.CaptureFixture[str]
) -> None:
    write_split(tmp_path, "train", [30], classes=1)
    records = Records(global_batch=4, size=8, classes=4, balance=1.0)
    write_split(tmp_path, "validation", [4])
    split = records.load(tmp_path).train
    split.labels[:27] = 3
    with RecordBatches(records, split, device=device, train=True, seed=1) as batches:
        epoch = [batch.labels.tolist() for batch in batches.epoch(2)]
        remaining = [batch.labels.tolist() for batch in batches.epoch(2, start=3)]
    assert len(epoch) == 30 // 4
    assert remaining == epoch[3:]
    assert abs(sum(label == 1 for batch in epoch for label in batch) - 14) <= 2
    assert "balance 1: images of a class" in capsys.readouterr().err


def test_batches_of_a_set_in_memory_are_balanced(split: Split, device: torch.device) -> None:
    def fail_if_called(path: Path | None) -> ImageSet:
        raise AssertionError

    thin = Split(split.images, np.where(np.arange(103) < 4, 1, 0).astype(np.int64))
    images = Arrays(global_batch=10, size=12, pad=1, make=fail_if_called)
    counts = []
    for balance in (0.0, 1.0):
        with Batches(thin, replace(images, balance=balance), device=device, train=True, seed=1) as batches:
            counts.append(sum(int(batch.labels.sum()) for batch in batches.epoch(0)))
            assert batches.steps_per_epoch == 10
    assert counts[0] <= 4
    assert 40 <= counts[1] <= 60


def test_evaluation_is_never_balanced(split: Split, device: torch.device) -> None:
    images = Arrays(global_batch=103, size=12, balance=1.0, make=lambda path: None)  # type: ignore[arg-type, return-value]
    with Batches(split, images, device=device, train=False, seed=1) as batches:
        (batch,) = batches.epoch(0)
    assert batch.index.tolist() == list(range(103))
