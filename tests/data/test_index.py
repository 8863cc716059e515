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

from data.record_files import message, png, write_split
from viaduct.data import index as index_module
from viaduct.data import sidecar
from viaduct.data.file_index import (
    FileIndex,
    build_index,
    load_index,
    load_or_build_index,
    masked_crcs,
    read_dali_index,
)
from viaduct.data.index import RecordFolder, index_records, totals
from viaduct.data.shards import read_label_names, record_files
from viaduct.data.tfrecord import BadRecord, RecordWriter, frame, masked_crc32c
from viaduct.errors import BadData

SIZES = [5, 0, 7, 3]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_split(tmp_path, "train", SIZES)
    write_split(tmp_path, "validation", [4], first=100)
    return tmp_path


def shard(folder: Path, number: int = 0) -> Path:
    return folder / f"train-{number:05d}-of-00004"


def overwrite(path: Path, at: int, new: bytes) -> None:
    """Damage that leaves size and time as they were."""
    times = os.stat(path)
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(new)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_every_record_by_its_number(folder: Path) -> None:
    records = RecordFolder(folder, "train")
    assert len(records) == 15
    for number in range(15):
        assert bytes(records.record(number)) == message(number, number % 3 + 1)
        assert bytes(records.fields(number).encoded) == png(number)
    assert records.labels().tolist() == [number % 3 + 1 for number in range(15)]
    assert len(RecordFolder(folder, "validation")) == 4
    for number in (-1, 15):
        with pytest.raises(IndexError, match="of 15"):
            records.record(number)


def test_records_in_a_folder_of_their_split(tmp_path: Path) -> None:
    write_split(tmp_path / "train", "train", [2])
    assert len(RecordFolder(tmp_path, "train")) == 2


def test_where_a_record_is(folder: Path) -> None:
    place = RecordFolder(folder).locate(6)
    assert (place.path, place.record) == (shard(folder, 2), 1)
    assert place.offset == len(frame(message(5, 3)))


def test_an_index_is_stored_beside_the_file_and_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_or_build_index(shard(folder))
    assert (folder / "train-00000-of-00004.idx.npy").is_file()
    monkeypatch.setattr("viaduct.data.file_index.build_index", lambda path: pytest.fail("built again"))
    again = load_or_build_index(shard(folder))
    assert isinstance(again.offsets.base, np.memmap) or isinstance(again.offsets, np.memmap)
    assert np.array_equal(again.offsets, first.offsets)
    assert np.array_equal(again.lengths, first.lengths)


def test_a_changed_file_is_indexed_anew(folder: Path) -> None:
    load_or_build_index(shard(folder))
    with RecordWriter(shard(folder)) as writer:
        writer.write(b"only one now")
    assert load_index(shard(folder)) is None
    assert load_or_build_index(shard(folder)).lengths.tolist() == [12]
    os.utime(shard(folder), ns=(1, 1))
    assert load_index(shard(folder)) is None


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"\x93NUMPY\x01\x00v\x00{'descr'"])
def test_a_broken_index_is_built_anew(folder: Path, damage: bytes) -> None:
    expected = load_or_build_index(shard(folder)).offsets.tolist()
    stored = folder / "train-00000-of-00004.idx.npy"
    stored.write_bytes(damage)
    assert load_or_build_index(shard(folder)).offsets.tolist() == expected
    table = np.array(np.load(stored))
    table[0, 3] += 1
    np.save(stored, table)
    assert load_index(shard(folder)) is None, "records must follow each other without a gap"
    np.save(stored, table.astype(np.float64))
    assert load_index(shard(folder)) is None
    stored.write_bytes(stored.read_bytes()[:-8])
    assert load_or_build_index(shard(folder)).offsets.tolist() == expected


def test_a_folder_that_may_not_be_written_to(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside, elsewhere = sidecar.list_paths(shard(folder))

    def refuse(path: Path, *, durable: bool = True):
        if path == beside:
            raise PermissionError(13, "Permission denied")
        return original(path, durable=durable)

    original = sidecar.replace_file
    monkeypatch.setattr(sidecar, "replace_file", refuse)
    index = load_or_build_index(shard(folder))
    assert not beside.exists()
    assert elsewhere.is_relative_to(cache)
    assert np.array_equal(load_index(shard(folder)).offsets, index.offsets)


def test_nowhere_to_write(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *, durable: bool = True):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(sidecar, "replace_file", refuse)
    assert len(RecordFolder(folder)) == 15
    assert len(RecordFolder(folder).labels()) == 15


def test_labels_are_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    labels = RecordFolder(folder).labels(on_progress=lambda done, total: seen.append((done, total)))
    assert seen == [(5, 15), (5, 15), (12, 15), (15, 15)]
    monkeypatch.setattr(RecordFolder, "record", lambda self, number: pytest.fail("read again"))
    assert np.array_equal(RecordFolder(folder).labels(), labels)


def test_a_flipped_byte_is_found_when_it_is_read(folder: Path) -> None:
    records = RecordFolder(folder)
    place = records.locate(6)
    overwrite(place.path, place.offset + 30, b"\xee")
    assert len(records.record(5))
    with pytest.raises(
        BadRecord, match=f"{place.path}: record 1 at byte {place.offset}: the checksum of its data is wrong"
    ):
        records.record(6)
    with pytest.raises(BadRecord, match="the checksum of its data"):
        records.labels()
    assert records.labels is not None
    assert len(RecordFolder(folder, check=False).record(6)) == place.length


def test_a_file_that_shrinks_while_it_is_used(folder: Path) -> None:
    records = RecordFolder(folder)
    os.truncate(shard(folder, 2), 30)
    with pytest.raises(BadRecord, match=r"truncated: expected .* found .*; the file has changed"):
        records.record(11)


def test_a_record_of_another_schema(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "train-00000-of-00001") as writer:
        writer.write(b"not an example")
    records = RecordFolder(tmp_path)
    with pytest.raises(BadRecord, match=r"record 0 at byte 0: not a tf\.train\.Example: "):
        records.fields(0)
    with pytest.raises(BadRecord, match=r"record 0 at byte 0: not a tf\.train\.Example: "):
        records.labels()


WRONG_LENGTH = "the checksum of its length is wrong"


@pytest.mark.parametrize(
    ("injury", "reason"),
    [
        (lambda content: content[:-1], "record 4 at byte .*: truncated: expected .* bytes of data and 4 of checksum"),
        (lambda content: content + b"abc", "record 5 at byte .*: truncated: expected a header of 12 bytes, found 3"),
        (lambda content: b"\x01" + content[1:], f"record 0 at byte 0: {WRONG_LENGTH}"),
        (lambda content: content[:7] + b"\xff" + content[8:], f"record 0 at byte 0: {WRONG_LENGTH}"),
        (lambda content: content + frame(b"")[:12] + bytes(20), f"record 6 at byte .*: {WRONG_LENGTH}"),
        (lambda content: content + bytes(16), f"record 5 at byte .*: {WRONG_LENGTH}"),
    ],
)
def test_damaged_headers_are_found_while_indexing(folder: Path, injury, reason: str) -> None:
    shard(folder).write_bytes(injury(shard(folder).read_bytes()))
    with pytest.raises(BadRecord, match=reason):
        build_index(shard(folder))


def test_damage_that_cannot_be_skipped_says_what_to_do(folder: Path) -> None:
    shard(folder).write_bytes(shard(folder).read_bytes()[:-5])
    with pytest.raises(BadRecord) as caught:
        RecordFolder(folder)
    assert "--on-bad-record skip does not help" in caught.value.hints[0]
    assert "`viaduct data build`" in caught.value.hints[1]


def test_checksums_of_all_headers_at_once() -> None:
    lengths = np.array([0, 1, 255, 54_000, (1 << 63) + 5], np.uint64)
    assert masked_crcs(lengths).tolist() == [masked_crc32c(int(length).to_bytes(8, "little")) for length in lengths]


def test_a_compressed_file_cannot_be_indexed(folder: Path) -> None:
    shard(folder).write_bytes(gzip.compress(shard(folder).read_bytes()))
    with pytest.raises(BadData, match=r"compressed \(gzip\)[\s\S]*unpack_records"):
        RecordFolder(folder)


def test_missing_files_are_named(folder: Path) -> None:
    shard(folder, 1).unlink()
    shard(folder, 3).unlink()
    with pytest.raises(BadData, match="2 of the 4 train files are missing: train-00001-of-00004, train-00003-of-00004"):
        RecordFolder(folder)


def test_two_sets_in_one_folder(folder: Path) -> None:
    write_split(folder, "train", [1, 1])
    with pytest.raises(BadData, match="2 sets of train files, of 2 and of 4"):
        RecordFolder(folder)


def test_no_records(tmp_path: Path) -> None:
    (tmp_path / "README").touch()
    with pytest.raises(BadData, match=r"there are no train records[\s\S]*it has: README"):
        RecordFolder(tmp_path)
    with pytest.raises(BadData, match="there is no such folder"):
        RecordFolder(tmp_path / "nowhere")
    assert record_files(tmp_path, "validation") == []


def test_records_without_validation_files_say_how_to_get_some(folder: Path) -> None:
    for path in folder.glob("validation-*"):
        path.unlink()
    with pytest.raises(BadData, match=r"there are no validation records[\s\S]*--validation-share 0\.1"):
        RecordFolder(folder, "validation")


def test_names_of_the_classes(tmp_path: Path) -> None:
    assert read_label_names(tmp_path) == {}
    file = tmp_path / "labels.txt"
    for text, expected in (
        ("0:background\n1:tench\n7:a: colon\n", {0: "background", 1: "tench", 7: "a: colon"}),
        ("tench\ngoldfish\n\n", {1: "tench", 2: "goldfish"}),
        ("background\ntench\n", {0: "background", 1: "tench"}),
        ("", {}),
    ):
        file.write_text(text)
        assert read_label_names(tmp_path) == expected
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(BadData, match=r"labels.txt: could not be read"):
        read_label_names(tmp_path)


def test_dalis_text_form(folder: Path, tmp_path: Path) -> None:
    indexed = index_records(folder, dali=True)
    sizes = [len(frame(message(number, number % 3 + 1))) for number in range(5)]
    lines = (folder / "train-00000-of-00004.idx").read_text().splitlines()
    assert lines == [f"{sum(sizes[:number])} {size}" for number, size in enumerate(sizes)]
    assert (folder / "train-00001-of-00004.idx").read_text() == ""
    assert totals(indexed)[0] == 19
    assert totals(indexed)[1] == sum(path.stat().st_size for path in folder.glob("*-of-?????"))
    again: FileIndex = read_dali_index(folder / "train-00000-of-00004.idx")
    assert again.lengths.tolist() == load_or_build_index(shard(folder)).lengths.tolist()
    elsewhere = tmp_path / "idx_files"
    assert index_records(folder, dali_folder=elsewhere)[0].dali == elsewhere / "train-00000-of-00004.idx"


@pytest.mark.parametrize("text", ["0 1 2", "zero 100", "0 15", f"0 {1 << 70}", "ü 1"])
def test_a_text_index_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.idx").write_text(text)
    with pytest.raises(BadData, match="not an index of 'offset size' lines"):
        read_dali_index(tmp_path / "x.idx")


def test_indexing_says_what_it_did(folder: Path) -> None:
    seen = []
    assert all(one.renewed for one in index_records(folder, on_progress=lambda *numbers: seen.append(numbers)))
    assert seen[-1] == (5, 5)
    assert not any(one.renewed for one in index_records(folder))
    assert all(one.renewed for one in index_records(folder, rebuild=True))


def test_many_files_with_few_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "MAX_OPEN_FILES", 2)
    write_split(tmp_path, "train", [1] * 20)
    records = RecordFolder(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    numbers = np.random.default_rng(0).integers(0, 20, 400)
    wrong = []

    def read(part: np.ndarray) -> None:
        wrong.extend(n for n in part.tolist() if bytes(records.record(n)) != message(n, n % 3 + 1))

    threads = [threading.Thread(target=read, args=(part,)) for part in np.split(numbers, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(os.listdir("/proc/self/fd")) <= before + 2


def test_a_copy_in_another_process_reads_the_same(folder: Path) -> None:
    records = pickle.loads(pickle.dumps(RecordFolder(folder, "validation", check=False)))
    assert (len(records), records.check) == (4, False)


def count_and_sum(folder: Path) -> tuple[int, int]:
    records = RecordFolder(folder)
    return len(records), int(records.labels().sum())


def test_many_processes_index_the_same_folder(folder: Path) -> None:
    with multiprocessing.get_context("fork").Pool(6) as pool:
        assert set(pool.map(count_and_sum, [folder] * 24)) == {(15, 30)}
    assert not list(folder.glob(".*"))
    assert load_index(shard(folder)).labels.tolist() == [1, 2, 3, 1, 2]
