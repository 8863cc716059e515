"""Random access to TFRecord files: all files of a split as one sequence, through an index of each file.

    records = RecordFolder("imagenet/", "train")
    len(records), records.read_record(1_000_000), records.read_fields(7).label, records.read_labels(), records.names

`names` maps labels to class names. Records are read with `pread`: with a memory map, a file that shrinks would kill the
process.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from viaduct.data.example import ImageFields, decode_filename, decode_image_fields, decode_label
from viaduct.data.file_index import (
    CORRUPT_LABEL,
    FileIndex,
    Int64s,
    OpenFile,
    load_index,
    load_or_build_index,
    read_size_and_time,
    rebuild_index,
    store_index,
    write_dali_index,
)
from viaduct.data.shards import SPLITS, explain_nothing_found, list_record_files, read_label_names
from viaduct.data.tfrecord import CHECKSUM, HEADER, BadRecord, describe_truncation, find_checksum_error
from viaduct.errors import BadData

Decoded = TypeVar("Decoded")
Progress = Callable[[int, int], None]  # number of files done, and of all

MAX_OPEN_FILES = 128  # ImageNet has 1,152 files; systems usually allow a process 1,024 open ones


class Location(NamedTuple):
    """Position of a record."""

    file_number: int  # number of the file among the split's files
    path: Path
    record: int  # number of the record within its file
    offset: int  # position of its header, in bytes
    length: int  # size of its data, in bytes


class RecordFolder:
    """Records of a split, over all its files, by number; raises `BadData` if the split has no files.

    `check=False` does not verify the checksums of the data. Threads may read at the same time; a pickled copy opens the
    files again.
    """

    def __init__(self, path: Path | str, split: str = "train", *, check: bool = True) -> None:
        self.path, self.split, self.check = Path(path), split, check
        self.files = list_record_files(self.path, split)
        if not self.files:
            raise explain_nothing_found(self.path, split)
        self.names = read_label_names(self.path)
        indices = [load_or_build_index(file) for file in self.files]
        # Copied, because each memory-mapped index keeps a file open.
        self.offsets = np.concatenate([index.offsets for index in indices])
        self.lengths = np.concatenate([index.lengths for index in indices])
        # Number of the first record of each file, and then the number of all records.
        self.starts = [0, *np.cumsum([len(index.offsets) for index in indices]).tolist()]
        self._labels: Int64s | None = None
        self._handles: dict[int, OpenFile] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.offsets)

    def __reduce__(self) -> tuple[Callable[..., RecordFolder], tuple[object, ...]]:
        return partial(RecordFolder, check=self.check), (self.path, self.split)

    def locate(self, number: int) -> Location:
        """Return the position of a record."""
        if not 0 <= number < len(self):
            raise IndexError(f"record {number} of {len(self)}")
        file_number = bisect_right(self.starts, number) - 1
        return Location(
            file_number,
            self.files[file_number],
            number - self.starts[file_number],
            int(self.offsets[number]),
            int(self.lengths[number]),
        )

    def read_record(self, number: int) -> memoryview:
        """Return the data of a record; raise `BadRecord` if it is truncated or its checksum is wrong."""
        location = self.locate(number)
        expected = location.length + CHECKSUM.size
        body = self.open_file(location.file_number).read(expected, location.offset + HEADER.size)
        if len(body) < expected:  # the file was longer when it was indexed
            reason = describe_truncation(location.length, len(body)) + "; the file has changed"
            raise self.make_error(number, reason)
        data = memoryview(body)[: location.length]
        make_error = partial(self.make_error, number)
        error = find_checksum_error(data, body[location.length :], make_error) if self.check else None
        if error:
            raise error
        return data

    def read_fields(self, number: int) -> ImageFields:
        """Return image, label, text and boxes of a record; raise `BadRecord` if it is damaged or of another schema."""
        return self._decode_record(number, decode_image_fields)

    def _decode_record(self, number: int, decode: Callable[[memoryview], Decoded]) -> Decoded:
        data = self.read_record(number)
        try:
            return decode(data)
        except BadData as error:
            raise self.make_error(number, error.message) from error

    def make_error(self, number: int, reason: str, *hints: str) -> BadRecord:
        """Return an error that names the record's file, number, offset and image file."""
        location = self.locate(number)
        try:
            data = self.open_file(location.file_number).read(location.length, location.offset + HEADER.size)
        except BadData:
            data = b""
        return BadRecord(
            location.path, location.record, location.offset, reason.rstrip("."), *hints, made_from=decode_filename(data)
        )

    def describe_location(self, number: int) -> str:
        """Return file name and number of a record, for messages."""
        location = self.locate(number)
        return f"{location.path.name} record {location.record}"

    @property
    def how_to_list_bad(self) -> str:
        """Hint on how to find all bad records, for messages about one."""
        return f"`viaduct data check {self.path} --deep` counts all of them, and names the first ones of each file."

    def read_labels(self, *, skip_bad: bool = False) -> Int64s:
        """Return the label of every record, from the stored index or, the first time, from the records.

        A label that cannot be read raises `BadRecord`; with `skip_bad` it is `CORRUPT_LABEL`. Labels in the index are
        not compared with the records.
        """
        if self._labels is None:
            files = range(len(self.files))
            self._labels = np.concatenate([self._load_file_labels(file, skip_bad) for file in files])
        if not skip_bad:
            for number in np.flatnonzero(self._labels == CORRUPT_LABEL).tolist():
                self._labels[number] = self._read_label(number)  # raises, unless the record was repaired since
        return self._labels

    def _load_file_labels(self, file_number: int, skip_bad: bool) -> Int64s:
        """Return the labels of one file from its stored index; if it has none yet, read them and store them there."""
        path, first, stop = self.files[file_number], self.starts[file_number], self.starts[file_number + 1]
        stored = load_index(path)
        labels = stored.labels if stored is not None else None
        if labels is None:
            size_and_time = read_size_and_time(path)
            read_label = self._read_label_or_corrupt if skip_bad else self._read_label
            labels = np.array([read_label(number) for number in range(first, stop)], dtype=np.int64)
            store_index(path, size_and_time, FileIndex(self.offsets[first:stop], self.lengths[first:stop], labels))
        return np.array(labels)

    def _read_label(self, number: int) -> int:
        """Read the label from the record; raise `BadRecord` if it is damaged."""
        return self._decode_record(number, decode_label)

    def _read_label_or_corrupt(self, number: int) -> int:
        try:
            return self._read_label(number)
        except BadRecord:
            return CORRUPT_LABEL

    def open_file(self, file_number: int) -> OpenFile:
        """Return a file of the split, open; if MAX_OPEN_FILES are open, the one that was opened first is released."""
        handle = self._handles.get(file_number)
        if handle is None:
            with self._lock:
                if len(self._handles) >= MAX_OPEN_FILES:
                    self._handles.pop(next(iter(self._handles)))
                handle = self._handles.setdefault(file_number, OpenFile(self.files[file_number]))
        return handle


@dataclass(frozen=True)
class Indexed:
    """Outcome of indexing one file."""

    path: Path  # the TFRecord file
    records: int  # number of records
    bytes: int  # size of the file
    is_new: bool  # False: the stored index was up to date
    dali: Path | None  # path of the index in DALI's form, if one was written


def index_records(
    folder: Path | str,
    *,
    dali: bool = False,
    dali_folder: Path | None = None,
    rebuild: bool = False,
    on_progress: Progress | None = None,
) -> list[Indexed]:
    """Build the index of every file of both splits that has no up-to-date index, or of all files with `rebuild`.

    With `dali` also write DALI's form beside each file, with `dali_folder` into that folder.
    """
    folder = Path(folder)
    files = [file for split in SPLITS for file in list_record_files(folder, split)]
    if not files:
        raise explain_nothing_found(folder, "train")
    done: list[Indexed] = []
    for file in files:
        stored = None if rebuild else load_index(file)
        index = rebuild_index(file) if stored is None else stored
        dali_path = write_dali_index(file, index, dali_folder) if dali or dali_folder is not None else None
        done.append(Indexed(file, len(index.offsets), index.size, stored is None, dali_path))
        if on_progress:
            on_progress(len(done), len(files))
    return done
