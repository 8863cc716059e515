"""Location of a stored index, and stored files that are no index."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from data.record_files import train_file
from viaduct.data import sidecar
from viaduct.data.file_index import (
    load_index,
    load_or_build_index,
)
from viaduct.data.index import RecordFolder

pytestmark = pytest.mark.usefixtures("index_cache")


def test_a_folder_that_may_not_be_written_to(records: Path, index_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside, elsewhere = sidecar.list_paths(train_file(records))

    def refuse(path: Path, *, durable: bool = True):
        if path == beside:
            raise PermissionError(13, "Permission denied")
        return original(path, durable=durable)

    original = sidecar.replace_file
    monkeypatch.setattr(sidecar, "replace_file", refuse)
    index = load_or_build_index(train_file(records))
    assert not beside.exists()
    assert elsewhere.is_relative_to(index_cache)
    assert np.array_equal(load_index(train_file(records)).offsets, index.offsets)


def test_without_a_writable_folder_nothing_is_stored(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *, durable: bool = True):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(sidecar, "replace_file", refuse)
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
def test_a_file_that_store_did_not_write_is_no_index(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.idx.npy").write_bytes(content)
    assert sidecar.load(tmp_path / "x.idx.npy") is None


def test_a_pipe_is_no_index_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.idx.npy")
    assert sidecar.load(tmp_path / "x.idx.npy") is None


def test_a_stored_table_is_read_as_it_was_and_a_shorter_file_is_none(tmp_path: Path) -> None:
    table = np.arange(12, dtype=np.int64).reshape(3, 4)
    sidecar.store(tmp_path / "x", table)
    (stored,) = tmp_path.glob("x*")
    assert np.array_equal(sidecar.load(stored), table)
    os.truncate(stored, stored.stat().st_size - 8)
    assert sidecar.load(stored) is None


def test_files_of_one_name_in_two_folders_have_two_paths_in_the_cache(tmp_path: Path, index_cache: Path) -> None:
    paths = [sidecar.list_paths(tmp_path / folder / "train-00000-of-00001")[1] for folder in ("a", "b")]
    assert len(set(paths)) == 2
    assert all(path.is_relative_to(index_cache) for path in paths)
