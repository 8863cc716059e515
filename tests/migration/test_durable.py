"""Files that survive a crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from viaduct.migration.durable import digest, digest_file, read_content, write_file


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"theirs")
    with pytest.raises(FileExistsError):
        write_file(tmp_path / "a", b"ours", 0o644)
    assert (tmp_path / "a").read_bytes() == b"theirs"


def test_a_file_is_written_whole_with_its_mode(tmp_path: Path) -> None:
    data = bytes(range(256)) * 1000
    write_file(tmp_path / "a", data, 0o750)
    assert read_content(tmp_path / "a") == data
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o750
    assert digest_file(tmp_path / "a") == digest(data) != digest(b"")
