"""The files of a repository, read without git; git itself writes them here."""

from __future__ import annotations

import contextlib
import os
import random
from pathlib import Path

import pytest

from migration.test_walk import git, make_files
from viaduct.migration.walk import find_unsaved_files, walk
from viaduct.repository import UnreadableRepository, find_repository, open_repository


def commit_all(folder: Path, *init: str) -> None:
    git(folder, "init", "-q", *init)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "all")


def list_unsaved(folder: Path) -> list[str] | None:
    return find_unsaved_files(walk(folder))


@pytest.mark.parametrize("version", ["2", "3", "4"])
@pytest.mark.parametrize("format", ["sha1", "sha256"])
def test_every_form_of_index_shows_what_git_holds(tmp_path: Path, version: str, format: str) -> None:
    make_files(tmp_path, "a.py", "deep/er/b.py", "deep/er/bc.py", "d" * 150 + "/c.py", "文件.py")
    os.symlink("a.py", tmp_path / "link.py")
    commit_all(tmp_path, f"--object-format={format}")
    git(tmp_path, "update-index", "--index-version", version)
    if version == "3":
        git(tmp_path, "update-index", "--skip-worktree", "a.py")
        (tmp_path / "a.py").unlink()
        (tmp_path / "link.py").unlink()
        os.symlink("deep", tmp_path / "link.py")
        assert list_unsaved(tmp_path) == ["link.py"]
        return
    assert list_unsaved(tmp_path) == []
    (tmp_path / "deep/er/bc.py").write_text("x = 2\n")
    (tmp_path / "a.py").unlink()
    make_files(tmp_path, "new.py")
    assert list_unsaved(tmp_path) == ["a.py", "deep/er/bc.py", "new.py"]
    assert list_unsaved(tmp_path / "deep") == ["er/bc.py"]
    assert list_unsaved(tmp_path / "deep/er/b.py") == []


def test_an_index_without_checksum_is_read(tmp_path: Path) -> None:
    make_files(tmp_path, "a.py")
    commit_all(tmp_path)
    index = tmp_path / ".git/index"
    index.write_bytes(index.read_bytes()[:-20] + bytes(20))
    assert list_unsaved(tmp_path) == []


def test_a_change_of_the_same_length_and_time_is_seen(tmp_path: Path) -> None:
    make_files(tmp_path, "a.py")
    commit_all(tmp_path)
    before = (tmp_path / "a.py").stat()
    (tmp_path / "a.py").write_text("x = 9\n")
    os.utime(tmp_path / "a.py", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert list_unsaved(tmp_path) == ["a.py"]


def test_a_file_that_git_filtered_itself_is_known_until_it_is_touched(tmp_path: Path) -> None:
    (tmp_path / ".gitattributes").write_text("*.py text eol=crlf\n")
    (tmp_path / "a.py").write_bytes(b"x = 1\r\n")
    os.utime(tmp_path / "a.py", ns=(10**18, 10**18))
    commit_all(tmp_path)
    assert list_unsaved(tmp_path) == []
    os.utime(tmp_path / "a.py")
    assert list_unsaved(tmp_path) == ["a.py"], "without running git nobody knows"


def test_a_conflict_counts_as_unsaved(tmp_path: Path) -> None:
    make_files(tmp_path, "a.py")
    commit_all(tmp_path)
    git(tmp_path, "checkout", "-q", "-b", "other")
    (tmp_path / "a.py").write_text("x = 2\n")
    git(tmp_path, "commit", "-q", "-a", "-m", "two")
    git(tmp_path, "checkout", "-q", "-")
    (tmp_path / "a.py").write_text("x = 3\n")
    git(tmp_path, "commit", "-q", "-a", "-m", "three")
    with pytest.raises(Exception, match="status 1"):
        git(tmp_path, "merge", "other")
    assert list_unsaved(tmp_path) == ["a.py"]


def test_worktrees_and_submodules_are_read_where_their_index_lies(tmp_path: Path) -> None:
    make_files(tmp_path / "inner", "lib.py")
    commit_all(tmp_path / "inner")
    make_files(tmp_path / "main", "a.py")
    commit_all(tmp_path / "main")
    git(tmp_path / "main", "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(tmp_path / "inner"), "sub")
    git(tmp_path / "main", "commit", "-q", "-m", "sub")
    assert list_unsaved(tmp_path / "main") == []
    assert list_unsaved(tmp_path / "main/sub") == []
    (tmp_path / "main/sub/lib.py").write_text("x = 2\n")
    assert list_unsaved(tmp_path / "main") == ["sub/lib.py"]
    git(tmp_path / "main", "worktree", "add", "-q", str(tmp_path / "tree"))
    assert list_unsaved(tmp_path / "tree") == []
    found = find_repository(tmp_path / "tree")
    assert found is not None
    assert found.common == tmp_path / "main/.git"
    assert len(found.read_head_commit()) == 40


def test_git_folder_that_is_a_link_is_followed(tmp_path: Path) -> None:
    make_files(tmp_path / "project", "a.py")
    commit_all(tmp_path / "project")
    (tmp_path / "project/.git").rename(tmp_path / "store")
    os.symlink("../store", tmp_path / "project/.git")
    assert list_unsaved(tmp_path / "project") == []


def test_no_repository_and_a_bare_one_are_none(tmp_path: Path) -> None:
    make_files(tmp_path, "a.py")
    assert list_unsaved(tmp_path) is None
    git(tmp_path, "init", "-q", "--bare", "store")
    assert find_repository(tmp_path / "store") is None


@pytest.mark.parametrize("what", ["fifo", "text", "empty", "dangling", "elsewhere", "damaged", "split", "sparse"])
def test_what_cannot_be_read_is_not_taken_for_saved(tmp_path: Path, what: str) -> None:
    make_files(tmp_path, "a.py", "b/c.py")
    commit_all(tmp_path)
    path = tmp_path / ".git"
    if what in ("fifo", "text", "empty", "dangling"):
        path.rename(tmp_path / "moved")
        make_place = {
            "fifo": lambda: os.mkfifo(path),
            "text": lambda: path.write_text("hello"),
            "empty": path.mkdir,
            "dangling": lambda: os.symlink("nowhere", path),
        }
        make_place[what]()
    elif what == "elsewhere":
        git(tmp_path, "config", "core.worktree", "/tmp")
    elif what == "damaged":
        (path / "index").write_bytes((path / "index").read_bytes().replace(b"a.py", b"z.py"))
    elif what == "split":
        git(tmp_path, "update-index", "--split-index")
    else:
        git(tmp_path, "sparse-checkout", "set", "--cone", "--sparse-index", "b")
        make_files(tmp_path, "z/y.py")
        index = (path / "index").read_bytes()
        if b"sdir" not in index:
            pytest.skip("this git writes no sparse index here")
    with pytest.raises(UnreadableRepository):
        list_unsaved(tmp_path)


def test_the_commit_is_found_in_packed_refs_and_detached(tmp_path: Path) -> None:
    make_files(tmp_path, "a.py")
    commit_all(tmp_path)
    known = open_repository(tmp_path).read_head_commit()
    assert len(known) == 40
    git(tmp_path, "pack-refs", "--all")
    assert open_repository(tmp_path).read_head_commit() == known
    git(tmp_path, "checkout", "-q", "--detach")
    assert open_repository(tmp_path).read_head_commit() == known


def test_random_bytes_for_an_index_are_unreadable_and_no_traceback(tmp_path: Path) -> None:
    make_files(tmp_path, "a.py", "b.py")
    commit_all(tmp_path)
    index = tmp_path / ".git/index"
    content, draw = index.read_bytes(), random.Random(3)
    for _ in range(300):
        data = bytearray(content[: draw.randrange(len(content))] if draw.random() < 0.5 else content)
        for _ in range(3):
            if data:
                data[draw.randrange(len(data))] = draw.randrange(256)
        data[-20:] = bytes(20)  # no checksum, so that the parser is reached
        index.write_bytes(bytes(data))
        with contextlib.suppress(UnreadableRepository):
            assert len(open_repository(tmp_path).index.entries) <= 2
