"""Changes in place: all files or none are changed, at whichever call the process dies or the disk fails."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forked_viaduct import viaduct
from migration.interrupted_writing import (
    ADDED,
    NEW,
    OLD,
    Faults,
    call_that_removes_the_journal,
    contents,
    die,
    in_child,
    killed_at,
    results,
    silent,
    write_old_project,
)
from migration.small_project import make_project, migrated_project
from unprivileged import make_public_folder, run_as_nobody
from viaduct.errors import BadValue
from viaduct.migration import inplace, journal
from viaduct.migration.inplace import write_files, write_in_place
from viaduct.migration.journal import recover
from viaduct.migration.results import FileResult
from viaduct.migration.walk import STATE_FOLDER


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with make_public_folder() as folder:
        yield folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_old_project(tmp_path / "project")


BEFORE = {**OLD, "linked_too.txt": OLD["linked.py"], "shorter_too.txt": OLD["shorter.py"]}
AFTER = {**NEW, **ADDED, "linked_too.txt": NEW["linked.py"], "shorter_too.txt": NEW["shorter.py"]}


def check_whole(folder: Path, inode: int) -> str:
    """Check that all files are old or all new, with modes and hard links, and that nothing else is in the folder."""
    found = contents(folder)
    assert found in (BEFORE, AFTER), sorted(found)
    assert not (folder / STATE_FOLDER).exists()
    assert (folder / "a.py").stat().st_mode & 0o7777 == 0o750
    assert os.path.samefile(folder / "linked.py", folder / "linked_too.txt")
    assert (folder / "linked.py").stat().st_ino == inode
    return "old" if found == BEFORE else "new"


def test_a_process_that_dies_at_any_call_leaves_all_or_nothing_at_the_next_start(tmp_path: Path) -> None:
    outcomes = []
    for at in range(1, 10_000):
        folder = write_old_project(tmp_path / str(at))
        inode = (folder / "linked.py").stat().st_ino
        code = killed_at(folder, at)
        recover(folder, silent)
        outcomes.append(check_whole(folder, inode))
        if code == 0:
            break
        assert code == 9
    assert outcomes.count("old") > 60, "the calls before the last file is in its place"
    assert outcomes[-1] == "new"
    assert outcomes == sorted(outcomes, reverse=True), "first nothing, from one call on all"


def test_undoing_that_dies_at_any_call_is_undone_by_the_next_one(tmp_path: Path) -> None:
    last = call_that_removes_the_journal(write_old_project(tmp_path / "counted"))
    for at in range(1, 10_000):
        folder = write_old_project(tmp_path / str(at))
        inode = (folder / "linked.py").stat().st_ino
        assert killed_at(folder, last) == 9

        def work(folder: Path = folder, at: int = at) -> None:
            Faults(pytest.MonkeyPatch(), at, die)
            recover(folder, silent)

        code = in_child(work)
        recover(folder, silent)
        assert check_whole(folder, inode) == "old"
        if code == 0:
            break
    assert at > 10


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EACCES, errno.EPERM])
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
def test_an_error_at_any_call_leaves_all_or_nothing(tmp_path: Path, number: int, lasting: bool) -> None:
    """Fail at every call in turn; `lasting`: all later calls fail too, so only the next start can restore the files."""
    kept = 0
    for at in range(1, 10_000):
        folder = write_old_project(tmp_path / str(at))
        inode = (folder / "linked.py").stat().st_ino
        with pytest.MonkeyPatch.context() as patch:

            def happen(name: str, call: object, arguments: object) -> None:
                if lasting:
                    faults.at += 1  # noqa: B023
                if name != "close" and name not in ("unlink", "rmdir")[: 2 * (number == errno.ENOSPC)]:
                    raise OSError(number, os.strerror(number))

            faults = Faults(patch, at, happen)
            refused = ""
            try:
                write_files(folder, results())
            except BadValue as error:
                refused = str(error)
        if refused and "The next `viaduct migrate`" in refused:
            kept += 1
            assert (folder / STATE_FOLDER / journal.JOURNAL).exists()
        elif refused:
            assert {path: data for path, data in contents(folder).items() if STATE_FOLDER not in path} == BEFORE, (
                refused
            )
        recover(folder, silent)
        assert check_whole(folder, inode) == ("old" if refused else "new"), (at, refused)
        if faults.count < at:
            break
    assert at > 60
    assert kept or not lasting


def test_owner_mode_times_attributes_and_inodes_of_what_is_undone_are_as_before(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path: path.stat() for path in project.rglob("*.py")}
    Faults(monkeypatch, 10**9, die)
    monkeypatch.setattr(inplace.InPlaceWriter, "check_backups", failing)
    with pytest.raises(BadValue, match="No file was changed"):
        write_files(project, results())
    monkeypatch.undo()
    assert contents(project) == BEFORE
    for path, was in before.items():
        now = path.stat()
        assert (now.st_ino, now.st_mode, now.st_nlink, now.st_mtime_ns) == (
            *(was.st_ino, was.st_mode, was.st_nlink, was.st_mtime_ns),
        ), path


def failing(_: object) -> None:
    raise OSError(errno.EIO, "Input/output error")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_the_owner_stays_the_owner(project: Path) -> None:
    os.chown(project / "a.py", 65534, 65533)
    (project / "a.py").chmod(0o640)
    write_files(project, results())
    found = (project / "a.py").stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (65534, 65533, 0o640)


def test_extended_attributes_are_kept(project: Path) -> None:
    try:
        os.setxattr(project / "a.py", "user.note", b"mine")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    write_files(project, results())
    assert (project / "a.py").read_bytes() == NEW["a.py"]
    assert os.getxattr(project / "a.py", "user.note") == b"mine"


def test_a_file_of_somebody_else_that_may_be_written_keeps_its_owner(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may give files away")
    folder = write_old_project(tmp_path / "project")
    for path in (tmp_path, folder, folder / "sub"):
        path.chmod(0o777)
    (folder / "a.py").chmod(0o666)  # root's, and anybody may write into it
    inode = (folder / "a.py").stat().st_ino
    files = [FileResult("a.py", OLD["a.py"], NEW["a.py"])]
    assert run_as_nobody(lambda: write_files(folder, files)) == 0
    found = (folder / "a.py").stat()
    assert (found.st_uid, found.st_ino) == (0, inode)
    assert (folder / "a.py").read_bytes() == NEW["a.py"]


def test_two_names_of_one_file_in_the_project_are_written_once(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"old")
    os.link(tmp_path / "a.py", tmp_path / "b.py")
    write_files(tmp_path, [FileResult(name, b"old", b"newer") for name in ("a.py", "b.py")])
    assert contents(tmp_path) == {"a.py": b"newer", "b.py": b"newer"}
    assert os.path.samefile(tmp_path / "a.py", tmp_path / "b.py")
    files = [FileResult(name, b"newer", data) for name, data in (("a.py", b"x"), ("b.py", b"y"))]
    with pytest.raises(BadValue, match="one file with two names"):
        write_files(tmp_path, files)
    assert contents(tmp_path) == {"a.py": b"newer", "b.py": b"newer"}


# ---- somebody else


@pytest.mark.parametrize("path", ["a.py", "linked.py"])
def test_a_file_that_was_changed_meanwhile_is_not_overwritten(project: Path, path: str) -> None:
    (project / path).write_text("mine\n")
    before = contents(project)
    with pytest.raises(BadValue, match="was changed while"):
        write_files(project, results())
    assert contents(project) == before


@pytest.mark.parametrize(
    ("path", "moment"),
    [
        ("a.py", "replace_content"),
        ("shorter.py", "replace_content"),
        ("sub/b.py", "replace_content"),
        ("a.py", "check_backups"),
        ("sub/b.py", "check_backups"),
    ],
)
def test_a_change_in_the_middle_of_the_writing_is_kept(
    project: Path, monkeypatch: pytest.MonkeyPatch, path: str, moment: str
) -> None:
    """A process that has the file open writes into its old inode."""
    original = getattr(inplace.InPlaceWriter, moment)
    editor = open(project / path, "r+b", buffering=0)  # noqa: SIM115

    def meddling(work: inplace.InPlaceWriter, *arguments: Any) -> Any:
        monkeypatch.setattr(inplace.InPlaceWriter, moment, original)
        editor.write(b"mine")
        return original(work, *arguments)

    monkeypatch.setattr(inplace.InPlaceWriter, moment, meddling)
    with pytest.raises(BadValue, match="was changed while"):
        write_files(project, results())
    editor.close()
    assert not (project / STATE_FOLDER).exists()
    found = contents(project)
    assert found.pop(path).startswith(b"mine")
    expected = {name: data for name, data in BEFORE.items() if name != path}
    if path == "shorter.py":
        assert found.pop("shorter_too.txt").startswith(b"mine")
        expected.pop("shorter_too.txt")
    assert found == expected


def kill_before_the_end(folder: Path) -> None:
    """Die when the files are written and the journal is still there."""
    assert killed_at(folder, call_that_removes_the_journal(write_old_project(folder.with_name("counted")))) == 9
    assert (folder / "a.py").read_bytes() == NEW["a.py"]


def test_a_file_that_appears_where_one_is_to_be_added_stays(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    move = inplace.move_new_file

    def late(new: Path, path: Path) -> None:
        path.write_text("mine\n")
        move(new, path)

    monkeypatch.setattr(inplace, "move_new_file", late)
    with pytest.raises(BadValue, match="has appeared"):
        write_files(project, results())
    assert contents(project) == {**BEFORE, "sub/helper.py": b"mine\n"}


def test_a_folder_that_became_a_link_is_not_followed(project: Path) -> None:
    (project / "sub").rename(project.parent / "elsewhere")
    os.symlink("../elsewhere", project / "sub")
    with pytest.raises(BadValue, match="has become a link"):
        write_files(project, results())
    assert (project.parent / "elsewhere/b.py").read_bytes() == OLD["sub/b.py"]
    assert not (project / STATE_FOLDER).exists()


# ---- what may lie in a project that somebody has sent


# ---- permissions


@pytest.mark.parametrize("what", ["root", "file", "folder"])
def test_what_may_not_be_written_is_refused_and_nothing_changes(tmp_path: Path, what: str) -> None:
    folder = write_old_project(tmp_path / "project")
    for path in [folder, *folder.rglob("*")]:
        if os.geteuid() == 0:
            os.chown(path, 65534, 65534)
    target = {"root": folder, "file": folder / "sub/b.py", "folder": folder / "sub"}[what]
    target.chmod(target.stat().st_mode & ~0o222)
    code = run_as_nobody(lambda: write_files(folder, results()))
    assert code == 2, "refused"
    assert contents(folder) == BEFORE
    target.chmod(0o755)


# ---- real signals


def large_project(folder: Path, count: int) -> dict[str, bytes]:
    for number in range(count):
        path = folder / f"part{number % 7}" / f"train{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"import torch\nx = torch.ones({number}).cuda()\ntorch.cuda.synchronize()\n")
    return contents(folder)


CODE = """
import os, sys, time
from viaduct.cli import main
rename = os.rename
def slowly(*names):  # so that most signals come between two files
    time.sleep(0.004)
    rename(*names)
os.rename = slowly
sys.argv[0] = "viaduct"
main()
"""


def start(folder: Path) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-c", CODE, "migrate", str(folder), "--in-place", "--quiet", "--jobs", "1"]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)


def wait_for_writing(process: subprocess.Popen[bytes], folder: Path, files: int = 0) -> None:
    """Wait until a number of files have been replaced."""
    while process.poll() is None:
        state = folder / STATE_FOLDER
        if not files and state.exists():
            return
        if (state / journal.JOURNAL).exists() and len(os.listdir(state / journal.NEW)) <= FILES - files:
            return
        time.sleep(0.0005)


def end_process(process: subprocess.Popen[bytes], number: int) -> str:
    process.send_signal(number)
    output = process.communicate(timeout=120)[1].decode()
    assert process.returncode in (0, -number, 130 if number == signal.SIGINT else -number), output
    return output


FILES = 60


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL])
def test_a_signal_between_two_files_undoes_all_of_them(tmp_path: Path, number: int) -> None:
    before = large_project(tmp_path, FILES)
    process = start(tmp_path)
    wait_for_writing(process, tmp_path, files=20)
    output = end_process(process, number)
    if number == signal.SIGKILL:
        assert contents(tmp_path) != before
        messages: list[str] = []
        recover(tmp_path / "part1/train1.py", messages.append)
        assert "is undone: every file that it had changed is as it was before" in messages[0]
    else:
        assert "No file was changed" in output
        assert process.returncode != 0
    assert contents(tmp_path) == before


@pytest.mark.slow
def test_fifty_random_moments_over_four_hundred_files_leave_all_or_nothing(tmp_path: Path) -> None:
    after = tmp_path / "after"
    large_project(after, 400)
    process = start(after)
    wait_for_writing(process, after)
    began = time.monotonic()
    process.communicate(timeout=120)
    seconds, new = time.monotonic() - began, contents(after)
    draw = random.Random(18)
    seen = {"old": 0, "new": 0, "undone": 0}
    for trial in range(50):
        number = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)[trial % 3]
        folder = tmp_path / f"trial{trial}"
        old = large_project(folder, 400)
        process = start(folder)
        wait_for_writing(process, folder)
        time.sleep(draw.random() * seconds * 1.1)
        end_process(process, number)
        assert number == signal.SIGKILL or contents(folder) in (old, new), "put back at once"
        messages: list[str] = []
        recover(folder, messages.append)
        found = contents(folder)
        assert found in (old, new)
        seen["old" if found == old else "new"] += 1
        seen["undone"] += any("it is undone" in message for message in messages)
        shutil.rmtree(folder)
    assert seen["old"] > 5
    assert seen["undone"] > 2, "some were killed between two files"


def test_the_next_start_of_any_migration_undoes_a_killed_one_first(tmp_path: Path) -> None:
    project = write_old_project(tmp_path / "around" / "project")
    kill_before_the_end(project)
    result = viaduct("migrate", str(project.parent), "--check")
    assert "A migration of " in result.stderr
    assert "interrupted; it is undone" in result.stderr
    assert contents(project) == BEFORE


def test_migrated_files_are_written_through_the_verbs_door(tmp_path: Path) -> None:
    folder = make_project(tmp_path / "project")
    write_in_place(migrated_project(folder))
    assert b"NPURunConfig" in (folder / "train.py").read_bytes()
    assert migrated_project(folder).changed_files == []
