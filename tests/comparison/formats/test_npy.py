"""NumPy files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from comparison.tensor_files import VALUES, Bomb, make_stored, npy_with
from viaduct.comparison.storage import open_tensor, read_dtype_and_shape
from viaduct.errors import BadData


def test_python_objects_are_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([Bomb()], dtype=object), allow_pickle=True)
    with pytest.raises(BadData, match="not unpickled"):
        open_tensor(make_stored(tmp_path / "a.npy"))
    with pytest.raises(BadData, match="not unpickled"):
        read_dtype_and_shape(tmp_path / "a.npy")


def test_a_file_cut_short_is_named_with_both_sizes(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", VALUES)
    (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-5])
    with pytest.raises(BadData, match=r"a.npy is cut short.* 224 bytes, but the file has 219"):
        read_dtype_and_shape(tmp_path / "a.npy")


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999, 99999999999999999), }",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<U4', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<M8', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '|V8', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<f4', 'fortran_order': 1, 'shape': (1,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': [1], }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (True,), }",
        "{'descr': '<f4'}",
        "__import__('os').getcwd()",
        "(" * 5000,
        "",
    ],
)
def test_a_strange_header_is_refused(tmp_path: Path, header: str) -> None:
    with pytest.raises(BadData):
        open_tensor(make_stored(npy_with(tmp_path / "a.npy", header, bytes(64))))


def test_an_unusual_but_honest_header_is_read(tmp_path: Path) -> None:
    header = '{"shape": (2,  2,), "descr": "<f4",\n "fortran_order": False}'
    path = npy_with(tmp_path / "a.npy", header, VALUES.tobytes()[:16])
    assert open_tensor(make_stored(path)).tolist() == [[0, 1], [2, 3]]
