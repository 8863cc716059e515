"""A file of lines that grows is read line by line, and from the beginning if it was replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from viaduct.growing_file import GrowingFile


class Reader:
    """A GrowingFile, and how often it was read from the beginning."""

    def __init__(self, path: Path) -> None:
        self.restarts = 0
        self.file = GrowingFile(path, self.count_restart)

    def count_restart(self) -> None:
        self.restarts += 1

    def read(self) -> list[bytes]:
        return list(self.file.read_new_lines())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("a\nb\n")
    return tmp_path / "file"


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_only_new_and_complete_lines_are_read(path: Path) -> None:
    reader = Reader(path)
    assert reader.read() == [b"a\n", b"b\n"]
    append(path, "c\nhalf")
    assert reader.read() == [b"c\n"]
    append(path, " a line\n")
    assert reader.read() == [b"half a line\n"]
    assert reader.read() == []
    assert reader.restarts == 1


def test_a_shorter_file_is_read_from_the_beginning(path: Path) -> None:
    reader = Reader(path)
    reader.read()
    path.write_text("a\n")
    assert reader.read() == [b"a\n"]
    assert reader.restarts == 2


def test_a_file_with_other_lines_is_read_from_the_beginning(path: Path) -> None:
    reader = Reader(path)
    reader.read()
    path.write_text("x\ny\nz\n")  # the same inode, and not shorter
    assert reader.read() == [b"x\n", b"y\n", b"z\n"]


def test_a_missing_file_has_no_lines_and_may_come_back(path: Path) -> None:
    reader = Reader(path.with_name("none"))
    assert reader.read() == []
    assert reader.restarts == 0
    path.rename(path.with_name("none"))
    assert len(reader.read()) == 2
    path.with_name("none").unlink()
    assert reader.read() == []
    assert reader.restarts == 2


def test_reading_goes_on_where_an_earlier_process_stopped(path: Path) -> None:
    first = Reader(path)
    first.read()
    append(path, "c\n")
    second = Reader(path)
    second.file.inode, second.file.offset, second.file.tail = first.file.inode, first.file.offset, first.file.tail
    assert second.read() == [b"c\n"]
    assert second.restarts == 0


def test_a_link_is_not_followed(path: Path) -> None:
    path.with_name("link").symlink_to(path)
    assert Reader(path.with_name("link")).read() == []
