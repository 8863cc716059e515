"""Index of one record file: never stale, and damage is found while it is built."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from data.record_files import train_file
from viaduct.data import file_index
from viaduct.data.file_index import (
    build_index,
    load_index,
    load_or_build_index,
)
from viaduct.data.index import RecordFolder
from viaduct.data.tfrecord import BadRecord, RecordWriter, frame_record, make_header

pytestmark = pytest.mark.usefixtures("index_cache")


def test_an_index_is_stored_beside_the_file_and_used(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_or_build_index(train_file(records))
    assert (records / "train-00000-of-00004.idx.npy").is_file()
    monkeypatch.setattr("viaduct.data.file_index.build_index", lambda path: pytest.fail("built again"))
    again = load_or_build_index(train_file(records))
    assert isinstance(again.offsets.base, np.memmap) or isinstance(again.offsets, np.memmap)
    assert np.array_equal(again.offsets, first.offsets)
    assert np.array_equal(again.lengths, first.lengths)


def test_a_changed_file_is_indexed_anew(records: Path) -> None:
    load_or_build_index(train_file(records))
    with RecordWriter(train_file(records)) as writer:
        writer.write(b"only one now")
    assert load_index(train_file(records)) is None
    assert load_or_build_index(train_file(records)).lengths.tolist() == [12]
    os.utime(train_file(records), ns=(1, 1))
    assert load_index(train_file(records)) is None


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"\x93NUMPY\x01\x00v\x00{'descr'"])
def test_a_broken_index_is_built_anew(records: Path, damage: bytes) -> None:
    expected = load_or_build_index(train_file(records)).offsets.tolist()
    stored = records / "train-00000-of-00004.idx.npy"
    stored.write_bytes(damage)
    assert load_or_build_index(train_file(records)).offsets.tolist() == expected
    table = np.array(np.load(stored))
    table[0, 3] += 1
    np.save(stored, table)
    assert load_index(train_file(records)) is None, "records must follow each other without a gap"
    np.save(stored, table.astype(np.float64))
    assert load_index(train_file(records)) is None
    stored.write_bytes(stored.read_bytes()[:-8])
    assert load_or_build_index(train_file(records)).offsets.tolist() == expected


WRONG_LENGTH = "the checksum of its length is wrong"


@pytest.mark.parametrize(
    ("injury", "reason"),
    [
        (lambda content: content[:-1], "record 4 at byte .*: truncated: expected .* bytes of data and 4 of checksum"),
        (lambda content: content + b"abc", "record 5 at byte .*: truncated: expected a header of 12 bytes, found 3"),
        (lambda content: b"\x01" + content[1:], f"record 0 at byte 0: {WRONG_LENGTH}"),
        (lambda content: content[:7] + b"\xff" + content[8:], f"record 0 at byte 0: {WRONG_LENGTH}"),
        (lambda content: content + frame_record(b"")[:12] + bytes(20), f"record 6 at byte .*: {WRONG_LENGTH}"),
        (lambda content: content + bytes(16), f"record 5 at byte .*: {WRONG_LENGTH}"),
        (lambda content: content + make_header((1 << 63) + 5), "record 5 at byte .*: its length is impossible"),
    ],
)
def test_damaged_headers_are_found_while_indexing(records: Path, injury, reason: str) -> None:
    train_file(records).write_bytes(injury(train_file(records).read_bytes()))
    with pytest.raises(BadRecord, match=reason):
        build_index(train_file(records))


# Stored indices


def test_a_folder_that_may_not_be_written_to(records: Path, index_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside, elsewhere = file_index.list_index_paths(train_file(records))

    def refuse(path: Path, *, durable: bool = True):
        if path == beside:
            raise PermissionError(13, "Permission denied")
        return original(path, durable=durable)

    original = file_index.replace_file
    monkeypatch.setattr(file_index, "replace_file", refuse)
    index = load_or_build_index(train_file(records))
    assert not beside.exists()
    assert elsewhere.is_relative_to(index_cache)
    assert np.array_equal(load_index(train_file(records)).offsets, index.offsets)


def test_without_a_writable_folder_nothing_is_stored(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *, durable: bool = True):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(file_index, "replace_file", refuse)
    assert len(RecordFolder(records)) == 15
    assert len(RecordFolder(records).read_labels()) == 15


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUMPY\x01\x00v\x00{'descr': '<i8', 'fortran_order': False, 'shape': (__import__('os'), 4), }",
        b"\x93NUMPY\x02\x00v\x00",
    ],
)
def test_a_file_that_store_table_did_not_write_is_no_index(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.idx.npy").write_bytes(content)
    assert file_index.load_table(tmp_path / "x.idx.npy") is None


def test_a_pipe_is_no_index_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.idx.npy")
    assert file_index.load_table(tmp_path / "x.idx.npy") is None


def test_a_stored_table_is_read_as_it_was_and_a_shorter_file_is_none(tmp_path: Path) -> None:
    table = np.arange(12, dtype=np.int64).reshape(3, 4)
    file_index.store_table(tmp_path / "x", table)
    (stored,) = tmp_path.glob("x*")
    assert np.array_equal(file_index.load_table(stored), table)
    os.truncate(stored, stored.stat().st_size - 8)
    assert file_index.load_table(stored) is None


def test_files_of_one_name_in_two_folders_have_two_paths_in_the_cache(tmp_path: Path, index_cache: Path) -> None:
    paths = [file_index.list_index_paths(tmp_path / folder / "train-00000-of-00001")[1] for folder in ("a", "b")]
    assert len(set(paths)) == 2
    assert all(path.is_relative_to(index_cache) for path in paths)
