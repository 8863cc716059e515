"""Files of a split: which belong together, which are missing, and the names of the classes."""

from __future__ import annotations

from pathlib import Path

import pytest

from data.record_files import train_file, write_split
from viaduct.data.index import RecordFolder
from viaduct.data.shards import list_record_files, read_label_names
from viaduct.errors import BadData

pytestmark = pytest.mark.usefixtures("index_cache")


def test_missing_files_are_named(records: Path) -> None:
    train_file(records, 1).unlink()
    train_file(records, 3).unlink()
    with pytest.raises(BadData, match="2 of the 4 train files are missing: train-00001-of-00004, train-00003-of-00004"):
        RecordFolder(records)


def test_two_sets_in_one_folder(records: Path) -> None:
    write_split(records, "train", [1, 1])
    with pytest.raises(BadData, match="2 sets of train files, of 2 and of 4"):
        RecordFolder(records)


def test_no_records(tmp_path: Path) -> None:
    (tmp_path / "README").touch()
    with pytest.raises(BadData, match=r"there are no train records[\s\S]*it has: README"):
        RecordFolder(tmp_path)
    with pytest.raises(BadData, match="there is no such folder"):
        RecordFolder(tmp_path / "nowhere")
    assert list_record_files(tmp_path, "validation") == []


def test_records_without_validation_files_say_how_to_get_some(records: Path) -> None:
    for path in records.glob("validation-*"):
        path.unlink()
    with pytest.raises(BadData, match=r"there are no validation records[\s\S]*--validation-share 0\.1"):
        RecordFolder(records, "validation")


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
