"""Batches from TFRecord files, MindRecord files, class folders or lists of images, prepared by threads.

A batch is one float32 array N,H,W,3 (`Buffer`), in pinned memory for CUDA. A task of a thread reads, decodes, crops and
resizes the images of several rows (indices of N) of the buffer. If the training device is the CPU it also normalises
them; an accelerator normalises the batch itself. Buffers are reused: a batch on the CPU is valid until the next one is
requested. Which record a training image shows and all its random draws are pure functions of (seed, epoch, position),
so threads, prefetching and resuming do not change it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from viaduct.cores import count_cores
from viaduct.data.auto_augment import find_policy
from viaduct.data.balance import describe_balance, draw_balanced_order
from viaduct.data.batches import WHOLE_BATCH, Batch, BatchStream, RankShare, check_count, find_mask
from viaduct.data.compiled import find_compiled
from viaduct.data.crops import make_crop_preparer
from viaduct.data.mindrecord_folder import MindRecordFolder
from viaduct.data.notices import MAX_PRINTED, print_notice
from viaduct.data.order import make_image_generator
from viaduct.data.preprocess import get_normalisation, prepare_image
from viaduct.data.records import Records, RecordSplit
from viaduct.data.tfrecord import BadRecord
from viaduct.errors import BadData

ROWS_PER_TASK = 8  # number of images that a thread prepares in one task
MAX_BAD_SHARE = 0.001  # with on_bad_record=skip a run stops if one rank finds more than this share of a split bad
ZERO_NOTE = (
    "note: the labels of these MindRecord files begin with 0 and are used unchanged; weights trained on ImageNet's "
    "TFRecords count classes from 1: to use such weights, give --set data.label_shift=1"
)
SLOW_NOTE = (
    "Note: viaduct's compiled image code is missing, so images are prepared many times slower. "
    "Reinstall viaduct on a machine with a C compiler (gcc), or from a wheel made with `make wheel`."
)


def has_zero_based_labels(split: RecordSplit) -> bool:
    """Return True if labels of MindRecord files begin with 0 and the network has more outputs than they need.

    Then the network may be one whose pretrained weights expect labels that begin with 1. If the recipe sets
    label_shift, the user knows, and the result is False.
    """
    if not isinstance(split.folder, MindRecordFolder) or split.records.label_shift:
        return False
    return bool(split.labels.min() == 0 and split.labels.max() <= split.records.classes - 2)


class DeviceCopier:
    """Copies batches from pinned memory to a CUDA device, on a separate stream beside the step of the previous batch.

    A copy waits for all work that was queued when the previous batch was copied. The steps of older batches are then
    done, so that at most two batches are on the device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._copy_stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._previous: Any = None  # event after all work that was queued when the previous batch was copied

    def run_copy(self, copy: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor, Any]:
        """Call `copy` on the copy stream; return its tensors, and the event after which pinned memory may be reused.

        The caller's stream waits for the copy, so the caller may use the tensors there.
        """
        step_stream: Any = torch.cuda.current_stream(self._device)
        queued = step_stream.record_event()
        self._copy_stream.wait_event(self._previous or queued)  # the first copy reads mean and scale: they must exist
        self._previous = queued
        with torch.cuda.stream(self._copy_stream):
            batch = copy()
            read_event = self._copy_stream.record_event()
        step_stream.wait_event(read_event)
        for tensor in batch:
            tensor.record_stream(step_stream)  # keeps its memory allocated until that stream is done with it
        return *batch, read_event


@dataclass
class Buffer:
    """Memory of one batch on the host; reused once the device has read it."""

    images: Tensor  # N,H,W,3 float32
    index_and_labels: Tensor  # 2 x N int64: each record's index in the split, and its label
    read_event: Any = None  # CUDA event after which the device has read the buffer; None: there is nothing to wait for

    def wait(self) -> None:
        """Wait until the device has read the buffer."""
        if self.read_event is not None:
            self.read_event.synchronize()


class RecordBatches(BatchStream):
    """Batches of one split of record files or class folders."""

    def __init__(
        self,
        records: Records,
        split: RecordSplit,
        *,
        device: torch.device,
        train: bool,
        seed: int,
        share: RankShare = WHOLE_BATCH,
    ) -> None:
        super().__init__(seed)
        self.count = len(split)
        # Positions of the rank's images within a global batch.
        self.global_batch, self._rank_positions = share.split_batch(records.get_batch_size(train), train)
        self._local_batch = len(self._rank_positions)
        self._rank_prefix = f"rank {share.rank}: " if share.rank else ""
        check_count(self.count, self.global_batch, train)
        full_batches = self.count // self.global_batch
        self.steps_per_epoch = full_batches if train else -(-self.count // self.global_batch)
        self._max_bad = max(1, int(MAX_BAD_SHARE * self.count))  # bad records that this rank replaces at most
        self._lock = threading.Lock()  # for `skipped`, which all threads fill
        self._records, self._split, self._device, self._train = records, split, device, train
        self._labels = split.labels
        self._policy = find_policy(records.auto_augment) if train else None
        self._colours = records.colours
        if train and share.rank == 0 and find_compiled("_lerp", "lerp") is None:
            print_notice(SLOW_NOTE)
        if train and records.balance and share.rank == 0:
            print_notice(describe_balance(split.labels, records.balance, split.names))
        if not train and share.rank == 0 and has_zero_based_labels(split):
            print_notice(ZERO_NOTE)
        on_cpu = device.type == "cpu"
        # Prepares several training images in one call; None: images are prepared one by one.
        self._crop_preparer = make_crop_preparer(records, split.folder, normalised=on_cpu) if train else None
        mean, scale = get_normalisation(records.preprocess)
        self._mean, self._scale = (torch.from_numpy(x).to(device).view(1, 3, 1, 1) for x in (mean, scale))
        self._workers = records.workers or max(1, count_cores() // share.ranks_on_machine)
        self._copier = DeviceCopier(device) if device.type == "cuda" else None
        self._free_buffers: list[Buffer] = []

    def close(self) -> None:
        """End the open iterators and their threads; if not all replaced records were printed, print their number."""
        super().close()
        if len(self.skipped) > MAX_PRINTED:
            print_notice(f"{self._rank_prefix}replaced: {len(self.skipped):,} of {self.count:,} records in all")

    def _iterate(self, epoch: int, start: int) -> Generator[Batch, None, None]:
        order = np.arange(self.count)
        if self._train:
            order = draw_balanced_order(self._split.labels, self._records.balance, self._seed, epoch)
        # Training drops an incomplete last batch; evaluation fills it with images from the beginning.
        order = np.resize(order, self.steps_per_epoch * self.global_batch)
        pool = ThreadPoolExecutor(self._workers, "viaduct-decode")
        pending: deque[tuple[int, Buffer, list[Future[None]]]] = deque()  # step, buffer, tasks that fill it
        try:
            for step in range(start, self.steps_per_epoch):
                pending.append(self._submit_batch(pool, order, epoch, step))
                if len(pending) > self._records.prefetch:
                    yield self._finish(order, *pending[0])
                    self._free_buffers.append(pending.popleft()[1])
            while pending:
                yield self._finish(order, *pending[0])
                self._free_buffers.append(pending.popleft()[1])
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _submit_batch(
        self, pool: ThreadPoolExecutor, order: npt.NDArray[np.int64], epoch: int, step: int
    ) -> tuple[int, Buffer, list[Future[None]]]:
        """Submit the tasks that fill a buffer with the batch of a step; return step, buffer and tasks."""
        buffer = self._take_buffer()
        rows = range(0, self._local_batch, ROWS_PER_TASK)
        return step, buffer, [pool.submit(self._fill, buffer, order, epoch, step, first) for first in rows]

    def _fill(self, buffer: Buffer, order: npt.NDArray[np.int64], epoch: int, step: int, first: int) -> None:
        """Prepare the images of ROWS_PER_TASK rows of the buffer, from row `first` on; runs in a thread."""
        images = buffer.images.numpy()[first : first + ROWS_PER_TASK]
        positions = step * self.global_batch + self._rank_positions[first : first + ROWS_PER_TASK]
        indices = order[positions]
        is_ready = np.zeros(len(indices), dtype=np.bool_)
        if self._crop_preparer:
            is_ready = self._crop_preparer.prepare(indices, positions, self._seed, epoch, images)
        for row in np.flatnonzero(~is_ready).tolist():
            self._prepare_record(int(indices[row]), epoch, int(positions[row]), images[row])

    def _prepare_record(self, index: int, epoch: int, position: int, out: npt.NDArray[np.float32]) -> None:
        """Write the image of record `index`, at `position` of the epoch's order, to `out`.

        A bad record raises `BadData` or is replaced, as `on_bad_record` says.
        """
        records = self._records
        generator = make_image_generator(self._seed, epoch, position) if self._train else None
        try:
            encoded, _, _, boxes = self._split.folder.read_fields(index)
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
            located = error if isinstance(error, BadRecord) else self._split.folder.make_error(index, error.message)
            if records.on_bad_record == "stop":
                raise self._add_hints(located) from None
            self._replace(located, out)

    def _add_hints(self, error: BadData) -> BadData:
        """Add hints to the error, how to continue and how to find the other bad records, and return it."""
        continue_hint = "--on-bad-record skip continues, with a plain mean-colour image in place of each such record."
        error.hints = (*error.hints, continue_hint, self._split.folder.how_to_list_bad)
        error.args = ("\n  ".join((error.message, *error.hints)),)
        return error

    def _note_replaced(self, error: BadData) -> None:
        """Add the message about a bad record to `skipped` once, for the report; print the first ones to stderr."""
        with self._lock:
            if error.message in self.skipped or len(self.skipped) > self._max_bad:
                return  # above the limit the run ends anyway
            self.skipped.append(error.message)
            if len(self.skipped) <= MAX_PRINTED:
                print_notice(f"{self._rank_prefix}replaced: {error.message}")
            if len(self.skipped) == MAX_PRINTED:
                print_notice(f"{self._rank_prefix}replaced: any more are counted at the end; the report names them all")

    def _replace(self, error: BadData, out: npt.NDArray[np.float32]) -> None:
        """Fill the image of a bad record with the mean colour; raise `BadData` if there are too many bad records.

        The image keeps the record's label (0 if the label cannot be read) and counts in the loss and the accuracy.
        """
        self._note_replaced(error)
        if len(self.skipped) > self._max_bad:
            limit = f"at most {self._max_bad:,} may be ({100 * MAX_BAD_SHARE:g} %, and never fewer than one)"
            raise BadData(
                f"{len(self.skipped):,} of {self.count:,} records are bad so far; {limit}.",
                f"The last: {self.skipped[-1]}",
                self._split.folder.how_to_list_bad,
            )
        out[:] = 0 if self._device.type == "cpu" else get_normalisation(self._records.preprocess)[0]

    def _finish(self, order: npt.NDArray[np.int64], step: int, buffer: Buffer, tasks: list[Future[None]]) -> Batch:
        """Wait for the tasks that fill the buffer, and return its batch on the device."""
        for task in tasks:
            task.result()
        indices = order[step * self.global_batch + self._rank_positions]
        buffer.index_and_labels.copy_(torch.from_numpy(np.stack([indices, self._labels[indices]])))
        images, (index, labels) = self._move_to_device(buffer)
        mask = find_mask(self._rank_positions, self.count - step * self.global_batch, self._device)
        return Batch(images, labels, mask, index)

    def _move_to_device(self, buffer: Buffer) -> tuple[Tensor, Tensor]:
        """Return the images, and one tensor of index and labels, on the device; with CUDA the copy is asynchronous."""
        if self._device.type == "cpu":
            return buffer.images.permute(0, 3, 1, 2), buffer.index_and_labels.clone()
        if self._copier is None:
            return self._copy(buffer)
        images, index_and_labels, buffer.read_event = self._copier.run_copy(partial(self._copy, buffer))
        return images, index_and_labels

    def _copy(self, buffer: Buffer) -> tuple[Tensor, Tensor]:
        """Copy the buffer to the device, and normalise the images there."""
        images = buffer.images.permute(0, 3, 1, 2).to(self._device, non_blocking=True)
        index_and_labels = buffer.index_and_labels.to(self._device, non_blocking=True)
        return images.sub_(self._mean).mul_(self._scale), index_and_labels

    def _take_buffer(self) -> Buffer:
        """Return a buffer that the device has read, or a new one."""
        if self._free_buffers:
            buffer = self._free_buffers.pop(0)
            buffer.wait()
            return buffer
        shape = (self._local_batch, self._records.size, self._records.size, 3)
        pinned = self._device.type == "cuda"
        index_and_labels = torch.empty((2, self._local_batch), dtype=torch.int64, pin_memory=pinned)
        return Buffer(torch.empty(shape, pin_memory=pinned), index_and_labels)
