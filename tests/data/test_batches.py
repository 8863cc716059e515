"""Batches: which images, in which order, on how many ranks, and what is left behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from viaduct.data.batches import Batch, Batches, RankShare
from viaduct.data.order import draw_permutation
from viaduct.data.source import Arrays, ImageSet, Split
from viaduct.errors import BadData, BadValue


def fail_if_called(path: Path | None) -> ImageSet:
    raise AssertionError("the tests bring their own arrays")


IMAGES = Arrays(global_batch=8, size=14, pad=2, flip=True, cutout=3, normalise="per_image", make=fail_if_called)
PREPARATIONS = [
    pytest.param({"workers": 0}, 4 << 30, id="resident-inline"),
    pytest.param({"workers": 1, "prefetch": 1}, 4 << 30, id="resident-one-thread"),
    pytest.param({"workers": 3, "prefetch": 5}, 4 << 30, id="resident-three-threads"),
    pytest.param({"workers": 0}, 0, id="streamed-inline"),
    pytest.param({"workers": 2, "prefetch": 2}, 0, id="streamed-two-threads"),
]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert data_threads() == []


def data_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("viaduct-data")]


def collect(batches: Batches, epoch: int, start: int = 0) -> list[Batch]:
    with batches:
        return list(batches.epoch(epoch, start))


def assert_same(one: list[Batch], other: list[Batch]) -> None:
    assert len(one) == len(other)
    for first, second in zip(one, other, strict=True):
        assert torch.equal(first.images, second.images)  # bitwise
        assert torch.equal(first.labels, second.labels)
        assert torch.equal(first.index, second.index)
        assert (first.mask is None) == (second.mask is None)


def indices(batches: list[Batch]) -> list[int]:
    return torch.cat([batch.index for batch in batches]).tolist()


@pytest.mark.parametrize(("threads", "limit"), PREPARATIONS)
def test_results_are_bitwise_the_same_however_they_are_prepared(
    split: Split, device: torch.device, threads: dict[str, int], limit: int
) -> None:
    def batches(images: Arrays, limit: int) -> list[Batch]:
        return collect(Batches(split, images, device=device, train=True, seed=1, resident_limit=limit), epoch=3)

    assert_same(batches(replace(IMAGES, **threads), limit), batches(replace(IMAGES, workers=0), 4 << 30))


@pytest.mark.parametrize(("threads", "limit"), PREPARATIONS)
@pytest.mark.parametrize("train", [True, False])
def test_an_epoch_started_late_is_the_tail_of_the_whole_one(
    split: Split, device: torch.device, threads: dict[str, int], limit: int, train: bool
) -> None:
    def batches() -> Batches:
        images = replace(IMAGES, **threads)
        return Batches(split, images, device=device, train=train, seed=1, resident_limit=limit)

    epoch = collect(batches(), 3)
    assert_same(collect(batches(), 3, start=5), epoch[5:])
    assert collect(batches(), 3, start=len(epoch)) == []


def test_epochs_can_be_taken_in_any_order(split: Split, device: torch.device) -> None:
    batches = Batches(split, IMAGES, device=device, train=True, seed=1)
    later, earlier = list(batches.epoch(1)), list(batches.epoch(0))
    assert_same(later, list(batches.epoch(1)))
    assert indices(later) != indices(earlier)
    batches.close()


def test_training_follows_the_order_and_drops_the_remainder(split: Split, device: torch.device) -> None:
    batches = Batches(split, IMAGES, device=device, train=True, seed=1)
    assert (batches.count, batches.steps_per_epoch) == (103, 12)
    made = collect(batches, 4)
    assert indices(made) == draw_permutation(1, 4, 103)[:96].tolist()
    assert all(batch.mask is None for batch in made)


def test_labels_belong_to_their_images(split: Split, device: torch.device) -> None:
    for batch in collect(Batches(split, IMAGES, device=device, train=True, seed=1), 0):
        assert batch.labels.tolist() == split.labels[batch.index.cpu().numpy()].tolist()
        assert batch.labels.dtype == torch.int64


def test_the_order_and_crops_do_not_depend_on_the_batch_size(split: Split, device: torch.device) -> None:
    small = collect(Batches(split, IMAGES, device=device, train=True, seed=1), 0)
    large = collect(Batches(split, replace(IMAGES, global_batch=32), device=device, train=True, seed=1), 0)
    assert torch.equal(torch.cat([batch.images for batch in small])[:96], torch.cat([b.images for b in large]))


@pytest.mark.parametrize("eval_batch", [0, 1, 10, 103, 200])
def test_every_validation_image_is_counted_exactly_once(split: Split, device: torch.device, eval_batch: int) -> None:
    images = replace(IMAGES, eval_batch=eval_batch)
    batches = Batches(split, images, device=device, train=False, seed=1)
    made = collect(batches, 0)
    assert len(made) == batches.steps_per_epoch
    assert {len(batch.images) for batch in made} == {eval_batch or 8}
    counted = [i for batch in made for i, counts in zip(batch.index.tolist(), mask_of(batch), strict=True) if counts]
    assert counted == list(range(103))
    assert all(batch.mask is None for batch in made[:-1])


def mask_of(batch: Batch) -> list[bool]:
    return [True] * len(batch.index) if batch.mask is None else batch.mask.tolist()


def test_the_last_validation_batch_is_filled_with_the_first_image(split: Split, device: torch.device) -> None:
    made = collect(Batches(split, IMAGES, device=device, train=False, seed=1), 0)
    assert made[-1].mask is not None
    assert made[-1].mask.tolist() == [True] * 7 + [False]
    assert made[-1].index.tolist() == [96, 97, 98, 99, 100, 101, 102, 0]
    assert torch.equal(made[-1].images[-1], made[0].images[0])


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("train", [True, False])
def test_all_ranks_together_get_the_images_of_a_single_rank(
    split: Split, device: torch.device, ranks: int, train: bool
) -> None:
    def of_rank(rank: int, ranks: int) -> list[Batch]:
        return collect(Batches(split, IMAGES, device=device, train=train, seed=1, share=RankShare(rank, ranks)), 2)

    parts = [of_rank(rank, ranks) for rank in range(ranks)]
    for step, alone in enumerate(of_rank(0, 1)):
        together = [part[step] for part in parts]
        assert torch.equal(torch.cat([batch.index for batch in together]), alone.index)
        assert torch.equal(torch.cat([batch.images for batch in together]), alone.images)
        assert [counts for batch in together for counts in mask_of(batch)] == mask_of(alone)


@pytest.mark.parametrize("train", [True, False])
def test_ranks_with_unequal_shares_get_every_image_once(split: Split, device: torch.device, train: bool) -> None:
    streams = [
        Batches(split, IMAGES, device=device, train=train, seed=1, share=RankShare(rank, 3)) for rank in range(3)
    ]
    made = [collect(stream, 0) for stream in streams]
    alone = collect(Batches(split, IMAGES, device=device, train=train, seed=1), 0)
    together = [batch for step in zip(*made, strict=True) for batch in step]
    if train:
        assert [len(batch.labels) for batch in together[:3]] == [3, 3, 2]
    seen = torch.cat([batch.index[torch.tensor(mask_of(batch), device=device)] for batch in together])
    wanted = torch.cat([batch.index[torch.tensor(mask_of(batch), device=device)] for batch in alone])
    assert torch.equal(seen, wanted)


def test_a_part_of_a_batch_is_shared_by_all_ranks(split: Split, device: torch.device) -> None:
    of_ranks = [
        collect(Batches(split, IMAGES, device=device, train=True, seed=1, share=RankShare(rank, 2, parts=2)), 0)[0]
        for rank in range(2)
    ]
    alone = collect(Batches(split, IMAGES, device=device, train=True, seed=1), 0)[0]
    parts = [torch.cat([batch.index.chunk(2)[part] for batch in of_ranks]) for part in range(2)]
    assert torch.equal(torch.cat(parts), alone.index)


def test_a_batch_that_ranks_cannot_share_is_refused(split: Split, device: torch.device) -> None:
    with pytest.raises(BadValue, match=r"global batch of 8 leaves some of 9 ranks without an image.\n  .* 9"):
        Batches(split, IMAGES, device=device, train=True, seed=1, share=RankShare(0, 9))
    with pytest.raises(BadValue, match="got rank 2 of 2"):
        Batches(split, IMAGES, device=device, train=True, seed=1, share=RankShare(2, 2))
    with pytest.raises(BadValue, match=r"with mixup a global batch of 8 cannot be divided among 3 ranks.*\n  .* 12"):
        Batches(split, IMAGES, device=device, train=True, seed=1, share=RankShare(0, 3, keeps_mixup_pairs=True))


def test_too_few_images_for_one_batch(split: Split, device: torch.device) -> None:
    few = Split(split.images[:5], split.labels[:5])
    with pytest.raises(BadData, match="has 5 images, fewer than one global batch of 8"):
        Batches(few, IMAGES, device=device, train=True, seed=1)
    none = Split(split.images[:0], split.labels[:0])
    with pytest.raises(BadData, match="validation split has no images"):
        Batches(none, IMAGES, device=device, train=False, seed=1)


@pytest.mark.parametrize("label", [-1, 10])
def test_a_label_out_of_range_is_found_before_the_first_step(split: Split, device: torch.device, label: int) -> None:
    labels = split.labels.copy()
    labels[[41, 57]] = label
    with pytest.raises(BadData, match=rf"image 41 is mislabelled: its label is {label}, not one of 0 to 9"):
        Batches(Split(split.images, labels), IMAGES, device=device, train=True, seed=1)


@pytest.mark.parametrize("start", [-1, 13])
def test_a_start_outside_of_the_epoch_is_refused(split: Split, device: torch.device, start: int) -> None:
    with (
        Batches(split, IMAGES, device=device, train=True, seed=1) as batches,
        pytest.raises(BadValue, match=f"start must be a step from 0 to 12, got {start}"),
    ):
        batches.epoch(0, start)


@pytest.mark.parametrize("limit", [4 << 30, 0])
def test_read_only_images_are_accepted(split: Split, device: torch.device, limit: int) -> None:
    """Memory-mapped files are; torch warns when it shares them, and warnings are errors here."""
    frozen = Split(split.images.copy(), split.labels.copy())
    frozen.images.flags.writeable = False
    frozen.labels.flags.writeable = False
    for pad in (0, 2):
        images = replace(IMAGES, pad=pad)
        expected = collect(Batches(split, images, device=device, train=True, seed=1), 0)
        made = collect(Batches(frozen, images, device=device, train=True, seed=1, resident_limit=limit), 0)
        assert_same(made, expected)


def test_abandoning_an_epoch_leaves_no_thread(split: Split, device: torch.device) -> None:
    batches = Batches(split, IMAGES, device=device, train=True, seed=1, resident_limit=0)
    for _ in batches.epoch(0):
        assert data_threads()
        break
    assert data_threads() == []


def test_an_error_in_the_training_loop_leaves_no_thread(split: Split, device: torch.device) -> None:
    def loop() -> None:
        with Batches(split, IMAGES, device=device, train=True, seed=1, resident_limit=0) as batches:
            for _ in batches.epoch(0):
                raise KeyError("a bug in the loop")

    with pytest.raises(KeyError) as caught:
        loop()
    assert data_threads() == []  # although the traceback still holds the iterator
    assert caught.traceback


def test_an_error_in_a_worker_reaches_the_training_loop(
    split: Split, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = Batches(split, IMAGES, device=device, train=True, seed=1, resident_limit=0)
    cut, calls = batches._storage.cut, iter(range(100))

    def fails_the_third_time(plan: torch.Tensor) -> Any:
        if next(calls) == 2:
            raise OSError("the disk went away")
        return cut(plan)

    monkeypatch.setattr(batches._storage, "cut", fails_the_third_time)
    seen: list[Batch] = []
    with pytest.raises(OSError, match="the disk went away"):
        seen.extend(batches.epoch(0))
    assert len(seen) == 2
    assert data_threads() == []


def test_closing_twice_is_fine_and_ends_open_epochs(split: Split, device: torch.device) -> None:
    batches = Batches(split, IMAGES, device=device, train=True, seed=1, resident_limit=0)
    iterator = batches.epoch(0)
    next(iterator)
    batches.close()
    batches.close()
    assert data_threads() == []
    assert list(iterator) == []
    with pytest.raises(RuntimeError, match="closed"):
        batches.epoch(0)


@pytest.fixture
def waiting_is_an_error() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="only CUDA can tell when the host waits for it")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("limit", [4 << 30, 0], ids=["resident", "streamed"])
def test_no_step_waits_for_the_device(split: Split, limit: int, request: pytest.FixtureRequest) -> None:
    cuda = torch.device("cuda")
    with Batches(split, IMAGES, device=cuda, train=True, seed=1, resident_limit=limit) as batches:
        request.getfixturevalue("waiting_is_an_error")
        assert len(list(batches.epoch(0))) == 12


@pytest.mark.skipif(not torch.cuda.is_available(), reason="compares CUDA with the CPU")
def test_the_gpu_gets_the_same_images_as_the_cpu(split: Split) -> None:
    def first(device: str) -> Batch:
        return collect(Batches(split, IMAGES, device=torch.device(device), train=True, seed=1), 0)[0]

    cuda, cpu = first("cuda"), first("cpu")
    assert torch.equal(cuda.index.cpu(), cpu.index)
    np.testing.assert_allclose(cuda.images.cpu().numpy(), cpu.images.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_policy_changes_training_and_not_evaluation(split: Split, device: torch.device, workers: int) -> None:
    plain = replace(IMAGES, workers=workers)
    changed = replace(plain, auto_augment="randaugment-2-9")

    def collect_epoch(images: Arrays, train: bool) -> list[Batch]:
        return collect(Batches(split, images, device=device, train=train, seed=1), epoch=3)

    assert_same(collect_epoch(changed, train=True), collect_epoch(replace(changed, workers=1), train=True))
    assert indices(collect_epoch(changed, train=True)) == indices(collect_epoch(plain, train=True))
    differ = [
        not torch.equal(a.images, b.images)
        for a, b in zip(collect_epoch(changed, True), collect_epoch(plain, True), strict=True)
    ]
    assert all(differ)
    assert_same(collect_epoch(changed, train=False), collect_epoch(plain, train=False))


def test_a_policy_is_resumed_exactly_and_does_not_depend_on_ranks(split: Split, device: torch.device) -> None:
    images = replace(IMAGES, auto_augment="cifar10")
    epoch = collect(Batches(split, images, device=device, train=True, seed=1), epoch=3)
    assert_same(collect(Batches(split, images, device=device, train=True, seed=1), epoch=3, start=5), epoch[5:])
    ranks = [
        collect(Batches(split, images, device=device, train=True, seed=1, share=RankShare(rank, 2)), epoch=3)
        for rank in range(2)
    ]
    for image, first, second in zip(epoch, *ranks, strict=True):
        assert torch.equal(image.images, torch.cat([first.images, second.images]))
