"""Batches of one split of images in arrays, augmented on the device or on the host.

    with Batches(split, source, device=device, train=True, seed=1) as batches:
        for batch in batches.epoch(0):
            ...

A split that fits into `resident_limit` bytes stays on the device and is augmented there. A larger split, or a training
split with an auto_augment policy, stays in host memory: its images are read and cropped there, by `workers` threads if
there are any, then copied as uint8 and normalised on the device. The batches do not depend on `workers`, `prefetch` or
the step at which an epoch starts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple, TypeVar
from weakref import WeakSet

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from viaduct.data.augment import (
    CropAndMirror,
    CutOut,
    Normalise,
    PlanRow,
    draw_training_plan,
    make_evaluation_plan,
    resize,
    zero_pad,
)
from viaduct.data.auto_augment import find_policy
from viaduct.data.balance import describe_balance, draw_balanced_order
from viaduct.data.notices import print_notice
from viaduct.data.order import list_rank_positions, make_image_generator
from viaduct.data.prefetch import prepare_ahead
from viaduct.data.source import Images, Labels, Pixels, Split
from viaduct.errors import BadData, BadValue


class Batch(NamedTuple):
    """One rank's part of one step."""

    images: Tensor  # N,3,H,W float32 channels_last, normalised, on the device
    labels: Tensor  # N int64, on the device
    mask: Tensor | None  # N bool, False for images that only fill the last batch of an evaluation; None: all are True
    index: Tensor  # type: ignore[assignment]  # N int64: positions in the split; hides tuple.index


@dataclass(frozen=True)
class RankShare:
    """Part of every batch that one process prepares: the whole batch, or one rank's part."""

    rank: int = 0
    ranks: int = 1
    parts: int = 1  # gradient accumulation steps; each part of a training batch is divided among the ranks
    # Mixup mixes image i of a part with image i counted from its end: True gives both to the same rank.
    keeps_mixup_pairs: bool = False
    ranks_on_machine: int = 1  # number of ranks on this machine, which share its cores

    def split_batch(self, global_batch: int, train: bool) -> tuple[int, npt.NDArray[np.int64]]:
        """Return the global batch size, in evaluation rounded up to a multiple of ranks, and this rank's positions."""
        if not train:
            global_batch = -(-global_batch // self.ranks) * self.ranks
            return global_batch, list_rank_positions(global_batch, self.rank, self.ranks)
        keeps_mixup_pairs = self.keeps_mixup_pairs and self.ranks > 1
        return global_batch, list_rank_positions(global_batch, self.rank, self.ranks, self.parts, keeps_mixup_pairs)


WHOLE_BATCH = RankShare()
AnyStream = TypeVar("AnyStream", bound="BatchStream")


class BatchStream(ABC):
    """Batches of one split, for the training loop; the base of all classes of batches."""

    count: int  # images in the split
    steps_per_epoch: int

    def __init__(self, seed: int = 0) -> None:
        self.skipped: list[str] = []  # a message for each bad record whose image was replaced
        self._seed = seed
        self._iterators: WeakSet[Generator[Batch, None, None]] = WeakSet()

    def reseed(self, seed: int) -> None:
        """Use this seed from the next epoch on; call it between epochs."""
        self._seed = seed

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Return an iterator over the batches of an epoch from step `start` on; `start` does not change a batch."""
        iterator = self._iterate(epoch, start)
        self._iterators.add(iterator)
        return iterator

    @abstractmethod
    def _iterate(self, epoch: int, start: int) -> Generator[Batch, None, None]: ...

    def close(self) -> None:
        """End the open iterators and their threads."""
        for iterator in list(self._iterators):
            iterator.close()

    def __enter__(self: AnyStream) -> AnyStream:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()


class Resident:
    """Images of a split that all stay on the device, padded once."""

    def __init__(self, images: Pixels, pad: int, crop: CropAndMirror | None, device: torch.device) -> None:
        # torch shares memory with writable arrays only
        shared = torch.from_numpy(np.require(images, requirements=["C", "W"]))
        self.padded = zero_pad(shared.to(device), pad)
        self.crop = crop

    def cut(self, plan: Tensor) -> Tensor:
        """Return the images of a slice of a plan (augment.py), uint8 NHWC; the slice is on the same device."""
        index = plan[PlanRow.INDEX]
        return self.crop(self.padded, index, plan) if self.crop else self.padded.index_select(0, index)


class Streamed:
    """Images of a split in host memory, possibly memory-mapped; only those of a batch are read."""

    def __init__(self, images: Pixels, pad: int, crop: CropAndMirror | None, pinned: bool) -> None:
        self.images, self.pad, self.crop, self.pinned = images, pad, crop, pinned

    def cut(self, plan: Tensor) -> Tensor:
        """Return the images of a slice of a plan in host memory, uint8 NHWC."""
        batch = torch.from_numpy(self.images[plan[PlanRow.INDEX].numpy()])
        if self.crop:
            batch = self.crop(zero_pad(batch, self.pad), torch.arange(len(batch)), plan)
        return batch.pin_memory() if self.pinned else batch


def store_images(
    pixels: Pixels, source: Images, *, train: bool, device: torch.device, resident_limit: int
) -> Resident | Streamed:
    """Store images on the device if they fit into `resident_limit` bytes after padding, otherwise in host memory."""
    pad = source.pad if train else 0
    count, height, width, channels = pixels.shape
    is_resident = count * (height + 2 * pad) * (width + 2 * pad) * channels <= resident_limit
    crop_device = device if is_resident else torch.device("cpu")
    crop = CropAndMirror(height, width, pad, crop_device) if train and (pad or source.flip) else None
    if is_resident:
        return Resident(pixels, pad, crop, device)
    return Streamed(pixels, pad, crop, pinned=device.type == "cuda")


class Batches(BatchStream):
    """Batches of one split of images in arrays."""

    def __init__(
        self,
        split: Split,
        source: Images,
        *,
        device: torch.device,
        train: bool,
        seed: int,
        resident_limit: int = 4 << 30,
        share: RankShare = WHOLE_BATCH,
    ) -> None:
        super().__init__(seed)
        self.count = len(split)
        # Positions of the rank's images within a global batch.
        self.global_batch, self._rank_positions = share.split_batch(source.get_batch_size(train), train)
        check_labels(split.labels, source.classes)
        check_count(self.count, self.global_batch, train)
        filling = 0 if train else -self.count % self.global_batch  # evaluation fills its last batch, training drops it
        self.steps_per_epoch = (self.count + filling) // self.global_batch
        self._source, self._device, self._train = source, device, train
        self._local_batch = len(self._rank_positions)
        self._height, self._width = split.images.shape[1:3]
        self._policy = find_policy(source.auto_augment) if train else None
        resident_limit = 0 if self._policy else resident_limit  # a policy is applied on the host, image by image
        self._storage = store_images(split.images, source, train=train, device=device, resident_limit=resident_limit)
        self._labels = torch.from_numpy(split.labels.copy()).to(device)
        self._normalise = Normalise(source, device)
        has_holes = train and source.cutout > 0
        self._cut_out = CutOut(self._height, self._width, source.cutout, device) if has_holes else None
        self._closed = False
        self._host_labels = split.labels
        if train and source.balance and share.rank == 0:
            print_notice(describe_balance(split.labels, source.balance, names={}))

    def _iterate(self, epoch: int, start: int) -> Generator[Batch, None, None]:
        if self._closed:
            raise RuntimeError("these batches were closed; make new ones")
        if not 0 <= start <= self.steps_per_epoch:
            raise BadValue(f"start must be a step from 0 to {self.steps_per_epoch}, got {start}.")
        steps = range(start, self.steps_per_epoch)
        plan = torch.from_numpy(self._select_rank_columns(self._make_plan(epoch)))
        is_resident = isinstance(self._storage, Resident)
        return self._cut_on_device(steps, plan) if is_resident else self._cut_on_host(epoch, steps, plan)

    def close(self) -> None:
        self._closed = True
        super().close()

    def _make_plan(self, epoch: int) -> npt.NDArray[np.int64]:
        """Return the plan (augment.py) of an epoch, for all ranks."""
        if not self._train:
            return make_evaluation_plan(self.count, self.steps_per_epoch * self.global_batch)
        source, seed = self._source, self._seed
        plan = draw_training_plan(source, self._height, self._width, seed=seed, epoch=epoch, count=self.count)
        if source.balance:
            plan[PlanRow.INDEX] = draw_balanced_order(self._host_labels, source.balance, seed, epoch)
        return plan

    def _select_rank_columns(self, plan: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return this rank's columns of an epoch's plan, batch after batch."""
        if self._local_batch == self.global_batch:
            return plan
        starts = np.arange(self.steps_per_epoch)[:, None] * self.global_batch
        return plan[:, (starts + self._rank_positions).reshape(-1)]

    def _cut_on_device(self, steps: range, plan: Tensor) -> Generator[Batch, None, None]:
        """Cut and finish each batch on the device, in the caller's thread.

        On an accelerator this only queues kernels. On the CPU a separate thread would slow the step by 4 % (ResNet-50,
        batch 8, two cores).
        """
        plan = self._copy(plan)
        for step in steps:
            batch_plan = self._slice(plan, step)
            yield self._finish(step, batch_plan, self._storage.cut(batch_plan))

    def _cut_on_host(self, epoch: int, steps: range, plan: Tensor) -> Generator[Batch, None, None]:
        """Cut each batch in a thread; the caller's thread copies it to the device and finishes it there."""
        device_plan = self._copy(plan)

        def cut(step: int) -> Tensor:
            return self._augment(self._storage.cut(self._slice(plan, step)), epoch, step)

        workers, ahead = self._source.workers, self._source.prefetch
        with closing(prepare_ahead(cut, steps, workers=workers, ahead=ahead)) as images:
            for step, cropped in zip(steps, images, strict=True):
                yield self._finish(step, self._slice(device_plan, step), self._copy(cropped))

    def _augment(self, images: Tensor, epoch: int, step: int) -> Tensor:
        """Apply the auto_augment policy, if any, in place."""
        if self._policy:
            positions = step * self.global_batch + self._rank_positions
            for image, position in zip(images.numpy(), positions.tolist(), strict=True):
                image[:] = self._policy(image, make_image_generator(self._seed, epoch, position))
        return images

    def _slice(self, plan: Tensor, step: int) -> Tensor:
        """Return the columns of a plan for one step."""
        first = step * self._local_batch
        return plan[:, first : first + self._local_batch]

    def _finish(self, step: int, plan: Tensor, images: Tensor) -> Batch:
        """Normalise images, cut holes if the recipe says so, resize, and return them with their labels."""
        finished = self._normalise(images)
        if self._cut_out:
            finished = self._cut_out(finished, plan)
        index = plan[PlanRow.INDEX]
        mask = find_mask(self._rank_positions, self.count - step * self.global_batch, self._device)
        return Batch(resize(finished, self._source.size), self._labels[index], mask, index)

    def _copy(self, tensor: Tensor) -> Tensor:
        """Copy a tensor to the device; with CUDA the copy is asynchronous, from pinned memory."""
        if self._device.type != "cuda":
            return tensor.to(self._device)
        return tensor.pin_memory().to(self._device, non_blocking=True)


def check_labels(labels: Labels, classes: int) -> None:
    """Raise `BadData` for a label outside of 0 to classes - 1."""
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        first = int(wrong[0])
        raise BadData(
            f"image {first} is mislabelled: its label is {labels[first]}, not one of 0 to {classes - 1}.",
            f"{len(wrong):,} of {len(labels):,} labels are out of range for classes={classes}.",
        )


def find_mask(positions: npt.NDArray[np.int64], remaining: int, device: torch.device) -> Tensor | None:
    """Return the mask of a batch, True for the images of the split; None if it is all True.

    `positions` are the rank's, sorted; only the first `remaining` positions of the global batch have such images.
    """
    count = int(np.searchsorted(positions, remaining))
    return None if count == len(positions) else torch.arange(len(positions), device=device) < count


def check_count(count: int, global_batch: int, train: bool) -> None:
    """Raise `BadData` for a split that is empty or, in training, smaller than one global batch."""
    if count == 0:
        raise BadData(f"the {'training' if train else 'validation'} split has no images.")
    if train and count < global_batch:
        raise BadData(
            f"the training split has {count} images, fewer than one global batch of {global_batch}.",
            f"Give --batch {count} or less, or add images.",
        )
