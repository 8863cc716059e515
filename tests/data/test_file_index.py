"""Index of one record file: never stale, and damage is found while it is built."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from data.record_files import train_file
from viaduct.data.file_index import (
    build_index,
    load_index,
    load_or_build_index,
)
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
