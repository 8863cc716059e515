"""Reading files of a folder that somebody else has arranged."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from viaduct.plain_files import open_plain_file, read_plain_file


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "link").symlink_to("secret")
    with pytest.raises(OSError, match="not a plain file"):
        read_plain_file(tmp_path / "link")


def test_a_fifo_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="not a plain file"):
        open_plain_file(tmp_path / "fifo")


def test_a_folder_and_a_device_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/dev/null")):
        with pytest.raises(OSError, match="not a plain file"):
            read_plain_file(path)


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_plain_file(tmp_path / "file") == read_plain_file(tmp_path / "file", 5) == b"12345"
    with pytest.raises(OSError, match="too large") as caught:
        read_plain_file(tmp_path / "file", 4)
    assert caught.value.errno == errno.EFBIG
    assert caught.value.filename == str(tmp_path / "file")
