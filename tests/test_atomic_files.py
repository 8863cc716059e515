"""Files and folders that are replaced whole."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from pathlib import Path

import pytest

from viaduct.atomic_files import (
    identify_machine,
    move_files,
    name_temporary,
    remove_leftovers,
    replace_file,
    replace_folder,
    write_file,
)
from viaduct.reporting import Page, write_page


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_a_pipe_is_never_replaced_by_a_file(pipe: Path) -> None:
    with pytest.raises(OSError, match="pipe, socket or device"), replace_file(pipe) as file:
        file.write(b"x")
    assert stat.S_ISFIFO(os.stat(pipe).st_mode)


def test_a_pipe_is_never_replaced_by_a_page(pipe: Path) -> None:
    with pytest.raises(OSError, match="pipe, socket or device"):
        write_page(Page("title"), pipe)
    assert stat.S_ISFIFO(os.stat(pipe).st_mode)


def test_a_failure_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), replace_file(path) as file:
        file.write(b"new" if 1 // 0 else b"")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_an_error_names_the_file_that_was_requested_and_not_the_temporary_one(tmp_path: Path) -> None:
    path = tmp_path / "gone" / "file.csv"
    with pytest.raises(FileNotFoundError) as raised, replace_file(path):
        pass
    assert raised.value.filename == str(path)


def test_a_folder_that_takes_no_files_is_an_error_about_the_file(tmp_path: Path) -> None:
    with pytest.raises(PermissionError) as raised, replace_file(Path("/proc/x.csv")):
        pass
    assert raised.value.filename == "/proc/x.csv"


def test_a_full_disk_is_an_error_about_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space") as raised, replace_file(tmp_path / "file"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert raised.value.filename == str(tmp_path / "file")


def test_an_error_about_another_file_stays_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised, replace_file(tmp_path / "file"):
        (tmp_path / "other").read_bytes()
    assert raised.value.filename == str(tmp_path / "other")


@pytest.mark.parametrize("name", ["a" * 255, "é" * 127, "a" * 251 + ".csv"])
def test_the_longest_name_can_be_written(name: str, tmp_path: Path) -> None:
    with replace_file(tmp_path / name) as file:
        file.write(b"x")
    assert os.listdir(tmp_path) == [name]


def test_long_names_that_begin_alike_have_temporary_files_of_their_own(tmp_path: Path) -> None:
    assert name_temporary(tmp_path / ("a" * 254 + "1")) != name_temporary(tmp_path / ("a" * 254 + "2"))


def test_only_what_ended_processes_of_this_machine_left_of_this_file_is_removed(tmp_path: Path) -> None:
    path, ended = tmp_path / "model.onnx", subprocess.Popen(["true"])
    ended.wait()
    own = name_temporary(path).name
    gone = own.replace(f"-{os.getpid()}-", f"-{ended.pid}-")
    kept = {
        own,
        gone.replace(identify_machine(), "00000000"),
        gone.replace("model.onnx", "other.onnx"),
        gone.removeprefix("."),
    }
    for name in (*kept, gone):
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights").touch()
    remove_leftovers(path)
    assert set(os.listdir(tmp_path)) == kept


def test_write_file_replaces_a_file_as_a_unit(tmp_path: Path) -> None:
    path = tmp_path / "figures"
    write_file(path, b"old")
    write_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["figures"]


def test_a_folder_is_replaced_as_a_unit(tmp_path: Path) -> None:
    path = tmp_path / "inner" / "dump"
    for content in ("old", "new"):
        with replace_folder(path) as folder:
            (folder / content).touch()
            assert not (path / content).exists()
        assert os.listdir(path) == [content]
    assert os.listdir(path.parent) == ["dump"]


def test_a_failure_leaves_the_old_folder_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "dump"
    path.mkdir()
    (path / "old").touch()
    with pytest.raises(ZeroDivisionError), replace_folder(path) as folder:
        (folder / f"new{1 // 0}").touch()
    assert os.listdir(path) == ["old"]
    assert os.listdir(tmp_path) == ["dump"]


def test_the_old_folder_comes_back_if_the_new_one_cannot_be_moved(tmp_path: Path) -> None:
    path = tmp_path / "dump"
    path.mkdir()
    (path / "old").touch()
    with pytest.raises(OSError, match="dump"), replace_folder(path) as folder:
        folder.rmdir()
    assert os.listdir(path) == ["old"]
    assert os.listdir(tmp_path) == ["dump"]


def test_moved_files_leave_other_files_of_the_folder(tmp_path: Path) -> None:
    new, target = tmp_path / "new", tmp_path / "target"
    for folder, names in ((new, ("a", "sums")), (target, ("a", "mine"))):
        folder.mkdir()
        for name in names:
            (folder / name).write_text(folder.name)
    move_files(new, target, last="sums")
    assert {path.name: path.read_text() for path in target.iterdir()} == {"a": "new", "sums": "new", "mine": "target"}
