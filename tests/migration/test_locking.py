"""Folders that one process holds at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from migration.interrupted_writing import (
    ADDED,
    NEW,
    contents,
    results,
    silent,
    write_old_project,
)
from unprivileged import make_public_folder
from viaduct.errors import BadValue
from viaduct.migration import inplace
from viaduct.migration.inplace import write_files
from viaduct.migration.journal import recover


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with make_public_folder() as folder:
        yield folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_old_project(tmp_path / "project")


AFTER = {**NEW, **ADDED, "linked_too.txt": NEW["linked.py"], "shorter_too.txt": NEW["shorter.py"]}


def test_two_at_once_are_refused_and_the_first_is_not_disturbed(project: Path) -> None:
    held = inplace.prepare_folder(project)
    with pytest.raises(BadValue, match="another `viaduct migrate --in-place` is writing"):
        write_files(project, results())
    with pytest.raises(BadValue, match="another"):
        recover(project / "sub", silent)
    held.release(remove=True)
    recover(project, silent)
    write_files(project, results())
    assert contents(project) == AFTER
