"""A project that is written in place, by processes that die at a chosen call of the operating system."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from viaduct.errors import BadValue
from viaduct.migration import journal
from viaduct.migration.inplace import write_files
from viaduct.migration.results import FileResult

OLD = {"a.py": b"a = 1\n" * 40, "sub/b.py": b"b = 1\n", "linked.py": b"old " * 30, "shorter.py": b"long " * 50}


NEW = {"a.py": b"a = 2\n", "sub/b.py": b"b = 2\n" * 50, "linked.py": b"new! " * 60, "shorter.py": b"short"}


ADDED = {"sub/helper.py": b"added = True\n"}


CALLS = (
    *("open", "pwrite", "fsync", "link", "rename", "unlink", "mkdir", "rmdir", "chmod", "chown", "ftruncate"),
    *("utime", "close"),
)


def write_old_project(folder: Path) -> Path:
    """Write a project whose files are changed in every way: by renaming, by overwriting (two hard links), and new."""
    for path, data in OLD.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    (folder / "a.py").chmod(0o750)
    for name in ("linked", "shorter"):
        os.link(folder / f"{name}.py", folder / f"{name}_too.txt")
    return folder


def results() -> list[FileResult]:
    changed = [FileResult(path, OLD[path], NEW[path]) for path in OLD]
    return [*changed, *(FileResult(path, b"", data) for path, data in ADDED.items())]


def contents(folder: Path) -> dict[str, bytes]:
    """Return the contents of all files, also those of the journal."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Faults:
    """Count the calls of os.* that write; at a chosen one, call a function, such as one that kills the process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, happen: Callable[..., None]) -> None:
        self.count, self.at, self.happen = 0, at, happen
        for name in CALLS:
            monkeypatch.setattr(os, name, self.wrapped(name, getattr(os, name)))

    def wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def count_call(*arguments: Any, **keywords: Any) -> Any:
            self.count += 1
            if self.count == self.at:
                self.happen(name, call, arguments)
            return call(*arguments, **keywords)

        return count_call


def die(name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    if name == "pwrite":  # half of it was written
        call(arguments[0], arguments[1][: len(arguments[1]) // 2], arguments[2])
    os._exit(9)


def in_child(work: Callable[[], object]) -> int:
    """Call a function in a forked process and return the exit code."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BadValue:
            os._exit(2)
        except BaseException:
            os._exit(3)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def silent(_: str) -> None:
    pass


def killed_at(folder: Path, at: int) -> int:
    def work() -> None:
        Faults(pytest.MonkeyPatch(), at, die)
        write_files(folder, results())

    return in_child(work)


def call_that_removes_the_journal(folder: Path) -> int:
    with pytest.MonkeyPatch.context() as patch:
        faults = Faults(patch, 0, die)
        counted, found = os.unlink, []

        def noting(path: Any, **keywords: Any) -> None:
            counted(path, **keywords)
            found.extend([faults.count] if Path(path).name == journal.JOURNAL else [])

        patch.setattr(os, "unlink", noting)
        write_files(folder, results())
    return int(found[0])
