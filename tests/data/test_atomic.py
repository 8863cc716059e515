"""Files that are replaced whole."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from viaduct.data.atomic import replacing
from viaduct.reporting import Page, write_page


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_a_pipe_is_never_replaced_by_a_file(pipe: Path) -> None:
    with pytest.raises(OSError, match="pipe, socket or device"), replacing(pipe) as file:
        file.write(b"x")
    assert stat.S_ISFIFO(os.stat(pipe).st_mode)


def test_a_pipe_is_never_replaced_by_a_page(pipe: Path) -> None:
    with pytest.raises(OSError, match="pipe, socket or device"):
        write_page(Page("title"), pipe)
    assert stat.S_ISFIFO(os.stat(pipe).st_mode)


def test_a_failure_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), replacing(path) as file:
        file.write(b"new" if 1 // 0 else b"")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]
