"""A rename that an overlay refuses."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from viaduct.rehearsal.renaming import rename_or_copy


def test_a_folder_that_the_kernel_will_not_rename_is_copied_and_removed(tmp_path: Path) -> None:
    def refuse(src: object, dst: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link", src)

    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "x.txt").write_text("x")
    (tmp_path / "new").mkdir()
    rename_or_copy(refuse, tmp_path / "old", tmp_path / "new")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["new", "x.txt"]
    with pytest.raises(OSError, match="cross-device"):
        rename_or_copy(refuse, tmp_path / "new" / "x.txt", tmp_path / "y.txt")
