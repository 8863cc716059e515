"""Random access: every record by its number, an index that is never stale, and files that are not what they were."""

from __future__ import annotations

import gzip
import multiprocessing
import os
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest

from data.record_files import message, png, train_file, write_split
from viaduct.data import index as index_module
from viaduct.data.file_index import (
    load_index,
)
from viaduct.data.index import RecordFolder, index_records
from viaduct.data.tfrecord import BadRecord, RecordWriter, frame_record
from viaduct.errors import BadData

pytestmark = pytest.mark.usefixtures("index_cache")


def overwrite(path: Path, at: int, new: bytes) -> None:
    """Damage that leaves size and time as they were."""
    times = os.stat(path)
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(new)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_every_record_by_its_number(records: Path) -> None:
    opened = RecordFolder(records, "train")
    assert len(opened) == 15
    for number in range(15):
        assert bytes(opened.read_record(number)) == message(number, number % 3 + 1)
        assert bytes(opened.read_fields(number).encoded) == png(number)
    assert opened.read_labels().tolist() == [number % 3 + 1 for number in range(15)]
    assert len(RecordFolder(records, "validation")) == 4
    for number in (-1, 15):
        with pytest.raises(IndexError, match="of 15"):
            opened.read_record(number)


def test_records_in_a_folder_of_their_split(tmp_path: Path) -> None:
    write_split(tmp_path / "train", "train", [2])
    assert len(RecordFolder(tmp_path, "train")) == 2


def test_a_record_is_located_in_its_file(records: Path) -> None:
    record = RecordFolder(records).locate(6)
    assert (record.path, record.record) == (train_file(records, 2), 1)
    assert record.offset == len(frame_record(message(5, 3)))


def test_labels_are_read_once(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = RecordFolder(records).read_labels()
    monkeypatch.setattr(RecordFolder, "read_record", lambda self, number: pytest.fail("read again"))
    assert np.array_equal(RecordFolder(records).read_labels(), labels)


def test_a_flipped_byte_is_found_when_it_is_read(records: Path) -> None:
    opened = RecordFolder(records)
    record = opened.locate(6)
    overwrite(record.path, record.offset + 30, b"\xee")
    assert len(opened.read_record(5))
    with pytest.raises(
        BadRecord, match=f"{record.path}: record 1 at byte {record.offset}: the checksum of its data is wrong"
    ):
        opened.read_record(6)
    with pytest.raises(BadRecord, match="the checksum of its data"):
        opened.read_labels()
    assert len(RecordFolder(records, check=False).read_record(6)) == record.length


def test_a_file_that_shrinks_while_it_is_used(records: Path) -> None:
    opened = RecordFolder(records)
    os.truncate(train_file(records, 2), 30)
    with pytest.raises(BadRecord, match=r"truncated: expected .* found .*; the file has changed"):
        opened.read_record(11)


def test_a_record_of_another_schema(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "train-00000-of-00001") as writer:
        writer.write(b"not an example")
    records = RecordFolder(tmp_path)
    with pytest.raises(BadRecord, match=r"record 0 at byte 0: not a tf\.train\.Example: "):
        records.read_fields(0)
    with pytest.raises(BadRecord, match=r"record 0 at byte 0: not a tf\.train\.Example: "):
        records.read_labels()


def test_damage_that_cannot_be_skipped_says_what_to_do(records: Path) -> None:
    train_file(records).write_bytes(train_file(records).read_bytes()[:-5])
    with pytest.raises(BadRecord) as caught:
        RecordFolder(records)
    assert "--on-bad-record skip does not help" in caught.value.hints[0]
    assert "`viaduct data build`" in caught.value.hints[1]


def test_a_compressed_file_cannot_be_indexed(records: Path) -> None:
    train_file(records).write_bytes(gzip.compress(train_file(records).read_bytes()))
    with pytest.raises(BadData, match=r"compressed \(gzip\)[\s\S]*unpack_records"):
        RecordFolder(records)


def test_an_index_is_written_in_dalis_form(records: Path, tmp_path: Path) -> None:
    indexed = index_records(records, dali=True)
    sizes = [len(frame_record(message(number, number % 3 + 1))) for number in range(5)]
    lines = (records / "train-00000-of-00004.idx").read_text().splitlines()
    assert lines == [f"{sum(sizes[:number])} {size}" for number, size in enumerate(sizes)]
    assert (records / "train-00001-of-00004.idx").read_text() == ""
    assert sum(file.records for file in indexed) == 19
    assert sum(file.bytes for file in indexed) == sum(path.stat().st_size for path in records.glob("*-of-?????"))
    elsewhere = tmp_path / "idx_files"
    assert index_records(records, dali_folder=elsewhere)[0].dali == elsewhere / "train-00000-of-00004.idx"


def test_indexing_returns_what_it_did(records: Path) -> None:
    seen = []
    assert all(shard.is_new for shard in index_records(records, on_progress=lambda *numbers: seen.append(numbers)))
    assert seen[-1] == (5, 5)
    assert not any(shard.is_new for shard in index_records(records))
    assert all(shard.is_new for shard in index_records(records, rebuild=True))


def test_many_files_with_few_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "MAX_OPEN_FILES", 2)
    write_split(tmp_path, "train", [1] * 20)
    records = RecordFolder(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    numbers = np.random.default_rng(0).integers(0, 20, 400)
    wrong = []

    def read(part: np.ndarray) -> None:
        wrong.extend(n for n in part.tolist() if bytes(records.read_record(n)) != message(n, n % 3 + 1))

    threads = [threading.Thread(target=read, args=(part,)) for part in np.split(numbers, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(os.listdir("/proc/self/fd")) <= before + 2


def test_a_copy_in_another_process_reads_the_same(records: Path) -> None:
    opened = pickle.loads(pickle.dumps(RecordFolder(records, "validation", check=False)))
    assert (len(opened), opened.check) == (4, False)


def count_and_sum(folder: Path) -> tuple[int, int]:
    records = RecordFolder(folder)
    return len(records), int(records.read_labels().sum())


def test_many_processes_index_the_same_folder(records: Path) -> None:
    with multiprocessing.get_context("fork").Pool(6) as pool:
        assert set(pool.map(count_and_sum, [records] * 24)) == {(15, 30)}
    assert not list(records.glob(".*"))
    assert load_index(train_file(records)).labels.tolist() == [1, 2, 3, 1, 2]
