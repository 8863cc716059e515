"""Archives of NumPy arrays."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from comparison.tensor_files import VALUES, Bomb, make_stored
from viaduct.comparison.storage import open_tensor, read_headers
from viaduct.errors import BadData


def test_python_objects_within_an_archive_leave_their_neighbours_readable(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", bad=np.array([Bomb()], dtype=object), good=VALUES)
    assert "not unpickled" in str(read_headers(tmp_path / "a.npz")["bad"])
    assert np.array_equal(open_tensor(make_stored(tmp_path / "a.npz", "good")), VALUES)


def test_a_member_that_unpacks_to_far_more_bytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(100_000), y=VALUES)
    assert open_tensor(make_stored(tmp_path / "a.npz", "x")).size == 100_000
    monkeypatch.setattr("viaduct.comparison.formats.npz.MAX_UNPACKED_BYTES", 1 << 10)
    with pytest.raises(BadData, match=r"a\.npz\[x\.npy\] is not read"):
        open_tensor(make_stored(tmp_path / "a.npz", "x"))
    assert np.array_equal(open_tensor(make_stored(tmp_path / "a.npz", "y")), VALUES)


@pytest.mark.parametrize("name", ["x.npz", "notes.txt"])
def test_another_file_in_an_archive_leaves_the_arrays_readable(tmp_path: Path, name: str) -> None:
    np.savez(tmp_path / "a.npz", x=VALUES)
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr(name, "text")
    assert "not a .npy file" in str(read_headers(tmp_path / "a.npz")[name])
    assert np.array_equal(open_tensor(make_stored(tmp_path / "a.npz", "x")), VALUES)
