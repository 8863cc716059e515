"""Batches from TFRecord files: threads read, decode, crop and resize straight into the batch.

A batch is one float32 array N,H,W,3, pinned where the device can copy from it; each thread fills its own rows of it, so
no image is copied or pickled on the way. An accelerator normalises; on the CPU the threads do. The host waits for no
copy (arrival.py), only for the threads, and these seldom for each other (crops.py). The arrays are used again: a batch
on the CPU is good until the next one is asked for. What an image looks like is a pure function of (seed, epoch,
position): threads, prefetching and resuming change nothing.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakSet

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from viaduct.data import geometry
from viaduct.data.arrival import Arrival
from viaduct.data.auto_augment import find_policy
from viaduct.data.balance import balanced_order, describe
from viaduct.data.batches import WHOLE, Batch, Share, check_count, real_mask
from viaduct.data.crops import find_crops
from viaduct.data.mindrecord_folder import MindRecordFolder
from viaduct.data.notices import NAMED_AT_MOST, print_notice
from viaduct.data.order import sample_generator
from viaduct.data.preprocess import normalisation, prepare_image
from viaduct.data.records import Records, RecordSplit
from viaduct.errors import BadData

ROWS_PER_TASK = 8  # images that a thread takes at a time
BAD_AT_MOST = 0.001  # share of bad records that `skip` puts up with


ZERO_NOTE = (
    "note: the labels of these MindRecord files begin with 0, and are used so; weights trained on ImageNet's TFRecords "
    "count from 1: for them --set data.label_shift=1"
)


def counts_from_zero(split: RecordSplit) -> bool:
    """Return True if labels of MindRecord files are 0 to N - 1 where the network has N + 1 outputs, as for 1 to N."""
    if not isinstance(split.folder, MindRecordFolder) or split.records.label_shift:
        return False
    return bool(split.labels.min() == 0 and split.labels.max() <= split.records.classes - 2)


SLOW_NOTE = (
    "Note: viaduct's compiled image code is missing here, so images are prepared many times slower. "
    "Install it again where a C compiler is (gcc), or from a wheel made with `make wheel`."
)


@dataclass
class Buffer:
    """Batch under construction; reused once the device has read it."""

    images: Tensor
    numbers: Tensor  # 2 x N: position in the split, and label
    read: Any = None  # the event after which the device has read it

    def wait(self) -> None:
        if self.read is not None:
            self.read.synchronize()


class RecordBatches:
    """Batches of one split of TFRecord files."""

    def __init__(
        self,
        records: Records,
        split: RecordSplit,
        *,
        device: torch.device,
        train: bool,
        seed: int,
        share: Share = WHOLE,
    ) -> None:
        self.count = len(split)
        wanted = records.global_batch if train else records.eval_batch or records.global_batch
        self.global_batch, self._mine = share.of(wanted, train)
        self._local_batch = len(self._mine)
        self._who = f"rank {share.rank}: " if share.rank else ""
        check_count(self.count, self.global_batch, train)
        filled = self.count // self.global_batch
        self.steps_per_epoch = filled if train else -(-self.count // self.global_batch)
        self.skipped: list[str] = []  # bad records, named
        self._tolerated = max(1, int(BAD_AT_MOST * self.count))
        self._lock = threading.Lock()
        self._records, self._split, self._device, self._train, self._seed = records, split, device, train, seed
        self._labels = split.labels
        self._policy = find_policy(records.auto_augment) if train else None
        self._colours = records.colours
        if train and share.rank == 0 and geometry.compiled_lerp() is None:
            print_notice(SLOW_NOTE)
        if train and records.balance and share.rank == 0:
            print_notice(describe(split.labels, records.balance, split.names))
        if not train and share.rank == 0 and counts_from_zero(split):
            print_notice(ZERO_NOTE)
        on_cpu = device.type == "cpu"
        self._crops = find_crops(records, split.folder, normalised=on_cpu) if train else None
        mean, scale = normalisation(records.preprocess)
        self._mean, self._scale = (torch.from_numpy(x).to(device).view(1, 3, 1, 1) for x in (mean, scale))
        self._workers = records.workers or max(1, len(os.sched_getaffinity(0)) // share.neighbours)
        self._arrival = Arrival(device) if device.type == "cuda" else None
        self._buffers: list[Buffer] = []
        self._iterators: WeakSet[Generator[Batch, None, None]] = WeakSet()

    def reseed(self, seed: int) -> None:
        """Order and augment by this seed from the next epoch on; call it between epochs."""
        self._seed = seed

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch from step `start` on; the same ones as if it had begun at step 0."""
        iterator = self._epoch(epoch, start)
        self._iterators.add(iterator)
        return iterator

    def close(self) -> None:
        for iterator in list(self._iterators):
            iterator.close()
        if len(self.skipped) > NAMED_AT_MOST:
            print_notice(f"{self._who}skipped: {len(self.skipped):,} of {self.count:,} records in all")

    def __enter__(self) -> RecordBatches:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def _epoch(self, epoch: int, start: int) -> Generator[Batch, None, None]:
        order = self._order(epoch) if self._train else np.arange(self.count)
        order = np.resize(order, self.steps_per_epoch * self.global_batch)  # evaluation: filled up from the beginning
        pool = ThreadPoolExecutor(self._workers, "viaduct-decode")
        pending: deque[tuple[int, Buffer, list[Future[None]]]] = deque()
        try:
            for step in range(start, self.steps_per_epoch):
                pending.append(self._submit_batch(pool, order, epoch, step))
                if len(pending) > self._records.prefetch:
                    yield self._finish(order, *pending[0])
                    self._buffers.append(pending.popleft()[1])
            while pending:
                yield self._finish(order, *pending[0])
                self._buffers.append(pending.popleft()[1])
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _order(self, epoch: int) -> npt.NDArray[np.int64]:
        return balanced_order(self._split.labels, self._records.balance, self._seed, epoch)

    def _submit_batch(
        self, pool: ThreadPoolExecutor, order: npt.NDArray[np.int64], epoch: int, step: int
    ) -> tuple[int, Buffer, list[Future[None]]]:
        buffer = self._free_buffer()
        rows = range(0, self._local_batch, ROWS_PER_TASK)
        return step, buffer, [pool.submit(self._fill, buffer, order, epoch, step, first) for first in rows]

    def _fill(self, buffer: Buffer, order: npt.NDArray[np.int64], epoch: int, step: int, first: int) -> None:
        images = buffer.images.numpy()[first : first + ROWS_PER_TASK]
        positions = step * self.global_batch + self._mine[first : first + ROWS_PER_TASK]
        numbers = order[positions]
        done = np.zeros(len(numbers), dtype=np.bool_)
        if self._crops:
            done = self._crops.prepare(numbers, positions, self._seed, epoch, images)
        for row in np.flatnonzero(~done).tolist():
            self._prepare_record(int(numbers[row]), epoch, int(positions[row]), images[row])

    def _prepare_record(self, number: int, epoch: int, position: int, out: npt.NDArray[np.float32]) -> None:
        """Prepare one record into `out`, as the network expects it."""
        records = self._records
        generator = sample_generator(self._seed, epoch, position) if self._train else None
        try:
            encoded, _, _, boxes = self._split.folder.fields(number)
            prepare_image(
                records.preprocess,
                encoded,
                self._train,
                generator,
                boxes,
                records.size,
                records.decode,
                out,
                normalised=self._device.type == "cpu",
                policy=self._policy,
                colours=self._colours,
            )
        except BadData as error:
            named = error if self._names_its_place(error) else self._split.folder.blame(number, error.what)
            if records.on_bad_record == "stop":
                raise self._with_remedy(named) from None
            self._replace(named, out)

    def _with_remedy(self, error: BadData) -> BadData:
        remedies = ("--on-bad-record skip goes on without such records.", self._split.folder.how_to_list_bad)
        error.hints = (*error.hints, *remedies)
        error.args = ("\n  ".join((error.what, *error.hints)),)
        return error

    def _names_its_place(self, error: BadData) -> bool:
        return type(error) is not BadData

    def _note(self, error: BadData) -> None:
        """Name a bad record once: here for the report, and the first ones on stderr as they are met."""
        with self._lock:
            if error.what in self.skipped or len(self.skipped) > self._tolerated:
                return  # after one too many nothing more is said: other threads may meet some before they end
            self.skipped.append(error.what)
            if len(self.skipped) <= NAMED_AT_MOST:
                print_notice(f"{self._who}skipped: {error.what}")
            if len(self.skipped) == NAMED_AT_MOST:
                print_notice(f"{self._who}skipped: any more are counted at the end; the report names them all")

    def _replace(self, error: BadData, out: npt.NDArray[np.float32]) -> None:
        """Put the mean colour in place of a bad image; too many bad ones end the run."""
        self._note(error)
        if len(self.skipped) > self._tolerated:
            limit = f"where {self._tolerated:,} may be: {100 * BAD_AT_MOST:g} %, and at least one"
            raise BadData(
                f"{len(self.skipped):,} of {self.count:,} records are bad so far, {limit}.",
                f"The last: {self.skipped[-1]}",
                self._split.folder.how_to_list_bad,
            )
        out[:] = 0 if self._device.type == "cpu" else normalisation(self._records.preprocess)[0]

    def _finish(self, order: npt.NDArray[np.int64], step: int, buffer: Buffer, parts: list[Future[None]]) -> Batch:
        for part in parts:
            part.result()
        index = order[step * self.global_batch + self._mine]
        buffer.numbers.copy_(torch.from_numpy(np.stack([index, self._labels[index]])))
        images, (numbers, labels) = self._arrive(buffer)
        mask = real_mask(self._mine, self.count - step * self.global_batch, self._device)
        return Batch(images, labels, mask, numbers)

    def _arrive(self, buffer: Buffer) -> tuple[Tensor, Tensor]:
        """Return images and numbers where the step runs. From pinned memory the host waits for neither."""
        if self._device.type == "cpu":
            return buffer.images.permute(0, 3, 1, 2), buffer.numbers.clone()
        if self._arrival is None:
            return self._copy(buffer)
        images, numbers, buffer.read = self._arrival.of(partial(self._copy, buffer))
        return images, numbers

    def _copy(self, buffer: Buffer) -> tuple[Tensor, Tensor]:
        images = buffer.images.permute(0, 3, 1, 2).to(self._device, non_blocking=True)
        return images.sub_(self._mean).mul_(self._scale), buffer.numbers.to(self._device, non_blocking=True)

    def _free_buffer(self) -> Buffer:
        if self._buffers:
            buffer = self._buffers.pop(0)
            buffer.wait()
            return buffer
        shape = (self._local_batch, self._records.size, self._records.size, 3)
        pinned = self._device.type == "cuda"
        numbers = torch.empty((2, self._local_batch), dtype=torch.int64, pin_memory=pinned)
        return Buffer(torch.empty(shape, pin_memory=pinned), numbers)
