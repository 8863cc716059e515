"""Journals of writing in place: what they restore, and what they refuse to follow."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from migration.interrupted_writing import (
    NEW,
    OLD,
    call_that_removes_the_journal,
    contents,
    killed_at,
    results,
    silent,
    write_old_project,
)
from unprivileged import make_public_folder
from viaduct.errors import BadValue
from viaduct.migration.durable import digest
from viaduct.migration.inplace import write_files
from viaduct.migration.journal import VERSION, recover
from viaduct.migration.walk import STATE_FOLDER


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with make_public_folder() as folder:
        yield folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_old_project(tmp_path / "project")


@pytest.mark.process
def test_what_was_edited_after_a_kill_is_left_and_named(project: Path) -> None:
    kill_before_the_end(project)
    (project / "a.py").write_text("mine\n")
    with pytest.raises(BadValue) as caught:
        recover(project, silent)
    assert "a.py" in str(caught.value)
    assert (project / "a.py").read_text() == "mine\n"
    assert (project / "sub/b.py").read_bytes() == OLD["sub/b.py"]
    assert any(data == OLD["a.py"] for path, data in contents(project).items() if path.startswith(STATE_FOLDER))
    with pytest.raises(BadValue):
        recover(project, silent)


def kill_before_the_end(folder: Path) -> None:
    """Die when the files are written and the journal is still there."""
    assert killed_at(folder, call_that_removes_the_journal(write_old_project(folder.with_name("counted")))) == 9
    assert (folder / "a.py").read_bytes() == NEW["a.py"]


@pytest.mark.process
def test_a_kill_after_the_last_change_is_not_called_a_migration_without_changes(project: Path, tmp_path: Path) -> None:
    last = call_that_removes_the_journal(write_old_project(tmp_path / "counted"))
    assert killed_at(project, last + 1) == 9
    messages: list[str] = []
    recover(project, messages.append)
    assert (project / "a.py").read_bytes() == NEW["a.py"]
    assert "it changed no file, or all" in messages[0]


@pytest.mark.process
def test_a_journal_of_version_1_is_undone(project: Path) -> None:
    kill_before_the_end(project)
    journal = project / STATE_FOLDER / "journal"
    record = json.loads(journal.read_text())
    changes = [{"way" if key == "method" else key: value for key, value in row.items()} for row in record["changes"]]
    journal.write_text(json.dumps({"version": 1, "changes": changes}))
    recover(project, silent)
    assert {path: contents(project)[path] for path in OLD} == OLD


def plant(folder: Path, path: str, method: str = "rename", old: bytes = b"theirs") -> None:
    state = folder / STATE_FOLDER
    (state / "old").mkdir(parents=True)
    (state / "new").mkdir()
    (state / "old/0").write_bytes(old)
    change = {"path": path, "method": method, "old": digest(old), "new": digest(b"victim")}
    (state / "journal").write_text(json.dumps({"version": VERSION, "changes": [change]}))


@pytest.mark.parametrize("path", ["../victim", "/tmp/victim", "sub/../../victim", "", ".", "sub//b.py", "a\0b"])
@pytest.mark.parametrize("method", ["rename", "rewrite", "create"])
def test_a_journal_cannot_reach_out_of_its_folder(tmp_path: Path, path: str, method: str) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"victim")
    folder = write_old_project(tmp_path / "project")
    plant(folder, path, method)
    with pytest.raises(BadValue, match="not a journal"):
        recover(folder, silent)
    assert victim.read_bytes() == b"victim"


def test_a_journal_does_not_follow_links(tmp_path: Path) -> None:
    (tmp_path / "victim.py").write_bytes(b"victim")
    folder = write_old_project(tmp_path / "project")
    os.symlink("..", folder / "up")
    plant(folder, "up/victim.py")
    with pytest.raises(BadValue, match="were changed since"):
        recover(folder, silent)
    assert (tmp_path / "victim.py").read_bytes() == b"victim"


@pytest.mark.parametrize("name", ["journal", "lock", "old/0"])
def test_a_fifo_in_the_journals_folder_is_not_waited_for(project: Path, name: str) -> None:
    plant(project, "a.py")
    (project / STATE_FOLDER / name).unlink(missing_ok=True)
    os.mkfifo(project / STATE_FOLDER / name)
    with pytest.raises(BadValue):
        recover(project, silent)
    assert contents(project)["a.py"] == OLD["a.py"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version": VERSION}', '{"version": VERSION, "changes": [1]}', "[" * 100_000]
)
def test_a_journal_that_is_none_is_refused_in_two_lines(project: Path, text: str) -> None:
    plant(project, "a.py")
    (project / STATE_FOLDER / "journal").write_text(text)
    with pytest.raises(BadValue, match="not a journal of this viaduct"):
        recover(project, silent)
    assert (project / STATE_FOLDER / "old/0").exists()


def test_nothing_of_a_users_own_is_removed_with_the_journal(project: Path) -> None:
    (project / STATE_FOLDER).mkdir()
    (project / STATE_FOLDER / "notes.txt").write_text("mine")
    recover(project, silent)
    assert (project / STATE_FOLDER / "notes.txt").read_text() == "mine"


def test_a_link_instead_of_the_journals_folder_is_not_followed(project: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", project / STATE_FOLDER)
    recover(project, silent)
    with pytest.raises(BadValue, match="not a folder"):
        write_files(project, results())
    assert os.listdir(tmp_path / "elsewhere") == []
