"""Random access to TFRecord files: an index per file, and all files of a split as one sequence.

    records = RecordFolder("imagenet/", "train")
    len(records), records.record(1_000_000), records.fields(7).label, records.labels(), records.names

An index lists where each record begins and how long it is. It is made by hopping from header to header, each of
them verified, and kept beside the file (see sidecar.py); labels join it when they are first asked for, since that
means reading everything once. DALI's text form, "offset size" a line, is written with `dali=True`.

Records are read with `pread`, not through a memory map: a file that shrinks under a map kills the process, a map
holds on to its file descriptor (1,152 files, where 1,024 may be open), and from the page cache it is no faster.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from viaduct.data import sidecar
from viaduct.data.atomic import replacing
from viaduct.data.crc32c import byte_words
from viaduct.data.example import ImageFields, image_fields, image_label
from viaduct.data.tfrecord import (
    CHECKSUM,
    HEADER,
    LONGEST,
    MASK,
    OVERHEAD,
    BadRecord,
    checked_length,
    compression,
    damage_of,
    truncated,
)
from viaduct.errors import BadData

Int64s = npt.NDArray[np.int64]
Split = Literal["train", "validation"]
Progress = Callable[[int, int], None]

SPLITS: tuple[Split, Split] = ("train", "validation")
LABELS_FILE = "labels.txt"
VERSION = 1
UNKNOWN = np.iinfo(np.int64).min  # a label that was not read yet
HOP_BYTES = 1 << 13  # read at each hop: several small records, or little of a large one
OPEN_FILES = 128
NAMED_AT_MOST = 5


class FileIndex(NamedTuple):
    """Where the records of one file are. Offsets are those of the headers, lengths those of the data."""

    offsets: Int64s
    lengths: Int64s
    labels: Int64s | None = None

    @property
    def size(self) -> int:
        """Bytes of the file that it describes."""
        return int(self.offsets[-1] + self.lengths[-1]) + OVERHEAD if len(self.offsets) else 0


# One file


def file_index(path: Path) -> FileIndex:
    """The index of a file: the stored one if it is up to date, otherwise a new one, which is then stored."""
    return stored_index(path) or renewed_index(path)


def stored_index(path: Path) -> FileIndex | None:
    """The stored index, memory-mapped; None if there is none for the file as it is now."""
    try:
        size, changed = sidecar.identity(path)
    except OSError as error:
        raise BadData(f"{path}: could not be opened: {error.strerror}.") from error
    for place in sidecar.places(path):
        table = sidecar.load(place)
        if table is None or len(table) != 3 or table[:, :1].ravel().tolist() != [size, changed, VERSION]:
            continue
        offsets, lengths, labels = table[:, 1:]
        if is_chain(offsets, lengths, size):
            return FileIndex(offsets, lengths, None if (labels == UNKNOWN).any() else labels)
    return None


def is_chain(offsets: Int64s, lengths: Int64s, size: int) -> bool:
    """Whether each record begins where the one before it ends, from the first byte of the file to the last."""
    ends = offsets + lengths + OVERHEAD
    begins = np.append(offsets, size)
    return bool(begins[0] == 0 and np.array_equal(begins[1:], ends) and (not len(lengths) or lengths.min() >= 0))


def renewed_index(path: Path) -> FileIndex:
    before = identity_of(path)
    index = build_index(path)
    keep(path, before, index)
    return index


def keep(path: Path, identity: tuple[int, int], index: FileIndex) -> None:
    table = np.full((3, 1 + len(index.offsets)), UNKNOWN, dtype=np.int64)
    table[:, 0] = *identity, VERSION
    table[0, 1:], table[1, 1:] = index.offsets, index.lengths
    if index.labels is not None:
        table[2, 1:] = index.labels
    sidecar.store(path, table)


def identity_of(path: Path) -> tuple[int, int]:
    try:
        return sidecar.identity(path)
    except OSError as error:
        raise BadData(f"{path}: could not be opened: {error.strerror}.") from error


def build_index(path: Path) -> FileIndex:
    """Hop from header to header; a `BadRecord` where one is damaged or the file ends too early."""
    refuse_compressed(path)
    handle = Handle(path)
    size = os.fstat(handle.descriptor).st_size
    offsets, heads = hop(handle, size)
    lengths, stored = headers_of(heads)
    wrong = np.flatnonzero(stored != masked_crcs(lengths))
    if len(wrong) or end_of(offsets, lengths) != size:
        raise first_damage(handle, path, int(wrong[0]) if len(wrong) else len(offsets) - 1, offsets, size)
    return FileIndex(np.array(offsets, dtype=np.int64), lengths.astype(np.int64))


def refuse_compressed(path: Path) -> None:
    kind = compression(path)
    if kind:
        raise BadData(
            f"{path}: it is compressed ({kind}), and a compressed file can only be read from its beginning.",
            "Unpack it first: viaduct.data.tfrecord.unpack_records(file, to) writes a plain one.",
        )


def hop(handle: Handle, size: int) -> tuple[list[int], list[bytes]]:
    """Offsets and headers up to the end of the file, or to where a damaged length leads nowhere."""
    offsets, heads = list[int](), list[bytes]()
    position, begin, window = 0, 0, b""
    while position < size:
        if position + HEADER.size > begin + len(window):
            begin, window = position, handle.read(HOP_BYTES, position)
        head = window[position - begin : position - begin + HEADER.size]
        offsets.append(position)
        heads.append(head)
        length = int.from_bytes(head[:8], "little")
        if len(head) < HEADER.size or length > LONGEST:
            break
        position += length + OVERHEAD
    return offsets, heads


def headers_of(heads: list[bytes]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
    """Lengths and stored checksums. A header that is cut off counts as zeros, which no checksum matches."""
    table = np.frombuffer(
        b"".join(head.ljust(HEADER.size, b"\0") for head in heads), dtype=[("length", "<u8"), ("crc", "<u4")]
    )
    return table["length"].astype(np.uint64), table["crc"].astype(np.uint32)


def masked_crcs(lengths: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
    """`masked_crc32c` of each length, all at once: 0.1 µs a header."""
    register = np.full(len(lengths), 0xFFFFFFFF, dtype=np.uint32)
    for byte in np.ascontiguousarray(lengths.astype("<u8")).view(np.uint8).reshape(-1, 8).T:
        register = byte_words()[(register ^ byte) & np.uint32(0xFF)] ^ register >> np.uint32(8)
    crc = ~register
    return (crc >> np.uint32(15) | crc << np.uint32(17)) + np.uint32(MASK)


def end_of(offsets: list[int], lengths: npt.NDArray[np.uint64]) -> int:
    return offsets[-1] + int(lengths[-1]) + OVERHEAD if offsets else 0


def first_damage(handle: Handle, path: Path, record: int, offsets: list[int], size: int) -> BadRecord:
    """The reason for stopping at a record: its header says, or the file ends inside of it."""
    offset = offsets[record]

    def damage(reason: str) -> BadRecord:
        return BadRecord(path, record, offset, reason)

    try:
        length = checked_length(handle.read(HEADER.size, offset), damage)
    except BadRecord as error:
        return error
    return damage(truncated(length, size - offset - HEADER.size))


class Handle:
    """An open file that is read at any place by any thread, and closed when nobody holds it any more."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = -1
        try:
            self.descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise BadData(f"{path}: could not be opened: {error.strerror}.") from error

    def read(self, count: int, offset: int) -> bytes:
        try:
            return os.pread(self.descriptor, count, offset)
        except OSError as error:
            raise BadData(f"{self.path}: could not be read at byte {offset:,}: {error.strerror}.") from error

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


# DALI's text form


def dali_index_path(path: Path, folder: Path | None = None) -> Path:
    """`train-00000-of-01024.idx`, beside the records or in a folder of its own."""
    return (folder or path.parent) / f"{path.name}.idx"


def write_dali_index(path: Path, index: FileIndex, folder: Path | None = None) -> Path:
    """One line a record: where it begins and how many bytes it takes up in all, as DALI's tfrecord2idx writes."""
    place = dali_index_path(path, folder)
    sizes = index.lengths + OVERHEAD
    lines = (f"{offset} {size}\n" for offset, size in zip(index.offsets.tolist(), sizes.tolist(), strict=True))
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with replacing(place) as file:
            file.write("".join(lines).encode())
    except OSError as error:
        raise BadData(f"{place}: could not be written: {error.strerror}.", "Name another folder for it.") from error
    return place


def read_dali_index(path: Path) -> FileIndex:
    """An index from DALI's text form."""
    try:
        numbers = [int(word) for word in path.read_text("ascii").split()]
        table = np.array(numbers, dtype=np.int64).reshape(-1, 2)
    except (OSError, ValueError, OverflowError) as error:
        raise BadData(f"{path}: not an index of 'offset size' lines: {error}.") from error
    if len(table) and table[:, 1].min() < OVERHEAD:
        raise BadData(f"{path}: not an index of 'offset size' lines: a record takes up {OVERHEAD} bytes at least.")
    return FileIndex(table[:, 0].copy(), table[:, 1] - OVERHEAD)


# All files of a split


def record_files(folder: Path, split: str) -> list[Path]:
    """`train-00000-of-01024` and its siblings, in FOLDER or FOLDER/train; empty if there are none.

    Raises if one of the set is missing, or if there are two sets.
    """
    if not folder.is_dir():
        raise BadData(f"{folder}: there is no such folder.", "Give the folder that holds train-00000-of-…")
    for place in (folder, folder / split):
        sets = shard_sets(place, split) if place.is_dir() else {}
        if sets:
            return only_set(place, split, sets)
    return []


def shard_sets(folder: Path, split: str) -> dict[int, dict[int, Path]]:
    """Number of files in a set, to the files found of it by number."""
    pattern = re.compile(rf"{re.escape(split)}-(\d{{5}})-of-(\d{{5}})")
    sets: dict[int, dict[int, Path]] = {}
    for entry in os.scandir(folder):
        match = pattern.fullmatch(entry.name)
        if match and entry.is_file():
            sets.setdefault(int(match[2]), {})[int(match[1])] = folder / entry.name
    return sets


def only_set(folder: Path, split: str, sets: dict[int, dict[int, Path]]) -> list[Path]:
    if len(sets) > 1:
        sizes = " and ".join(f"of {total}" for total in sorted(sets))
        raise BadData(f"{folder}: there are {len(sets)} sets of {split} files, {sizes}.", "Keep one of them here.")
    ((total, files),) = sets.items()
    missing = [shard_name(split, number, total) for number in range(total) if number not in files]
    if missing:
        more = f" and {len(missing) - NAMED_AT_MOST:,} more" if len(missing) > NAMED_AT_MOST else ""
        raise BadData(
            f"{folder}: {len(missing):,} of the {total:,} {split} files are missing: "
            f"{', '.join(missing[:NAMED_AT_MOST])}{more}.",
            "Copy them again; if they were being built, run the same build again and it goes on.",
        )
    return [files[number] for number in sorted(files)]


def shard_name(split: str, number: int, total: int) -> str:
    return f"{split}-{number:05d}-of-{total:05d}"


def read_label_names(folder: Path) -> dict[int, str]:
    """Label to class name, from labels.txt in the folder; empty if there is none.

    "7:tabby cat" gives label 7 its name (what `data build` and TF-Slim write). In a file without numbers the first
    line is label 1, as in ImageNet's records, or label 0 if it says "background".
    """
    file = folder / LABELS_FILE
    if not file.is_file():
        return {}
    try:
        lines = [line.strip() for line in file.read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise BadData(f"{file}: could not be read: {error}.") from error
    while lines and not lines[-1]:
        lines.pop()
    numbered = [re.fullmatch(r"(\d{1,18}):\s*(.*)", line) for line in lines]
    if all(numbered):
        return {int(match[1]): match[2] for match in numbered if match}
    first = 0 if lines[0].lower() == "background" else 1
    return dict(enumerate(lines, start=first))


class Place(NamedTuple):
    """Where a record of a folder is: for messages, and for reading it."""

    path: Path
    record: int  # in its file
    offset: int
    length: int


class RecordFolder:
    """The records of a split, over all its files, by number.

    `check=False` leaves out the checksums of the data. Any number of threads may read at once; a copy sent to
    another process opens the files anew.
    """

    def __init__(self, path: Path | str, split: str = "train", *, check: bool = True) -> None:
        self.path, self.split, self.check = Path(path), split, check
        self.files = record_files(self.path, split)
        if not self.files:
            raise BadData(*nothing_found(self.path, split))
        self.names = read_label_names(self.path)
        indices = [file_index(file) for file in self.files]
        # Copied, 16 bytes a record: 1,152 mapped indices would hold 1,152 file descriptors.
        self.offsets = np.concatenate([index.offsets for index in indices])
        self.lengths = np.concatenate([index.lengths for index in indices])
        self.starts = np.concatenate(([0], np.cumsum([len(index.offsets) for index in indices])))
        self._labels: Int64s | None = None
        self._handles: dict[int, Handle] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.offsets)

    def __reduce__(self) -> tuple[Callable[..., RecordFolder], tuple[object, ...]]:
        return reopened, (self.path, self.split, self.check)

    def place(self, number: int) -> Place:
        if not 0 <= number < len(self):
            raise IndexError(f"record {number} of {len(self)}")
        file = int(np.searchsorted(self.starts, number, side="right")) - 1
        record = number - int(self.starts[file])
        return Place(self.files[file], record, int(self.offsets[number]), int(self.lengths[number]))

    def record(self, number: int) -> memoryview:
        """What a record holds; a `BadRecord` if it is damaged."""
        place = self.place(number)

        def damage(reason: str) -> BadRecord:
            return BadRecord(place.path, place.record, place.offset, reason)

        expected = place.length + CHECKSUM.size
        body = self._handle(number).read(expected, place.offset + HEADER.size)
        if len(body) < expected:
            raise damage(truncated(place.length, len(body)) + "; the file has changed")
        data = memoryview(body)[: place.length]
        error = damage_of(data, body[place.length :], damage) if self.check else None
        if error:
            raise error
        return data

    def fields(self, number: int) -> ImageFields:
        """Picture, label, text and boxes of a record; a `BadRecord` if it is damaged or has another schema."""
        data = self.record(number)
        try:
            return image_fields(data)
        except BadData as error:
            raise self.blame(number, error.what) from error

    def blame(self, number: int, reason: str) -> BadRecord:
        """An error that says where the record is: for whoever finds that its picture cannot be decoded."""
        place = self.place(number)
        return BadRecord(place.path, place.record, place.offset, reason.rstrip("."))

    def labels(self, on_progress: Progress | None = None) -> Int64s:
        """The label of every record. The first time, every record is read; then they are in the index."""
        if self._labels is None:
            self._labels = np.concatenate([self._file_labels(file, on_progress) for file in range(len(self.files))])
        return self._labels

    def _file_labels(self, file: int, on_progress: Progress | None) -> Int64s:
        path, first, stop = self.files[file], int(self.starts[file]), int(self.starts[file + 1])
        stored = stored_index(path)
        labels = stored.labels if stored is not None else None
        if labels is None:
            before = identity_of(path)
            labels = np.array([self._label(number) for number in range(first, stop)], dtype=np.int64)
            keep(path, before, FileIndex(self.offsets[first:stop], self.lengths[first:stop], labels))
        if on_progress:
            on_progress(stop, len(self))
        return np.array(labels)

    def _label(self, number: int) -> int:
        data = self.record(number)
        try:
            return image_label(data)
        except BadData as error:
            raise self.blame(number, error.what) from error

    def _handle(self, number: int) -> Handle:
        """The open file of a record. The oldest one is let go when there are many; readers of it keep it alive."""
        file = int(np.searchsorted(self.starts, number, side="right")) - 1
        handle = self._handles.get(file)
        if handle is None:
            with self._lock:
                if len(self._handles) >= OPEN_FILES:
                    self._handles.pop(next(iter(self._handles)))
                handle = self._handles.setdefault(file, Handle(self.files[file]))
        return handle


def reopened(path: Path, split: str, check: bool) -> RecordFolder:
    return RecordFolder(path, split, check=check)


def nothing_found(folder: Path, split: str) -> tuple[str, ...]:
    seen = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    shown = ", ".join(seen[:12]) + (f" and {len(seen) - 12:,} more" if len(seen) > 12 else "")
    return (
        f"{folder}: there are no {split} records.",
        f"Expected {split}-00000-of-… ; it has: {shown or 'nothing'}.",
        "`viaduct data build` makes records of class folders.",
    )


@dataclass(frozen=True)
class Indexed:
    """One line of what `index_records` did."""

    path: Path
    records: int
    bytes: int
    renewed: bool
    dali: Path | None


def index_records(
    folder: Path | str,
    *,
    dali: bool = False,
    dali_folder: Path | None = None,
    rebuild: bool = False,
    on_progress: Progress | None = None,
) -> list[Indexed]:
    """Make or renew the index of every file of both splits; with `dali` (or a folder for it) DALI's form as well."""
    folder = Path(folder)
    files = [file for split in SPLITS for file in record_files(folder, split)]
    if not files:
        raise BadData(*nothing_found(folder, "train"))
    done: list[Indexed] = []
    for file in files:
        done.append(index_one(file, dali or dali_folder is not None, dali_folder, rebuild))
        if on_progress:
            on_progress(len(done), len(files))
    return done


def index_one(file: Path, dali: bool, dali_folder: Path | None, rebuild: bool) -> Indexed:
    stored = None if rebuild else stored_index(file)
    index = renewed_index(file) if stored is None else stored
    written = write_dali_index(file, index, dali_folder) if dali else None
    return Indexed(file, len(index.offsets), index.size, stored is None, written)


def totals(indexed: Sequence[Indexed]) -> tuple[int, int]:
    """Records and bytes of all files together."""
    return sum(one.records for one in indexed), sum(one.bytes for one in indexed)
