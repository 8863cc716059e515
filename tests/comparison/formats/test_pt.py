"""Tensors that torch.save wrote."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from comparison.tensor_files import VALUES, Bomb, make_stored
from viaduct.comparison.storage import open_tensor, read_dtype_and_shape
from viaduct.errors import BadData


def test_a_saved_tensor_that_names_anything_else_is_not_executed(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
        archive.writestr("a/data.pkl", pickle.dumps(Bomb()))
    with pytest.raises(BadData, match="cannot be read as a tensor"):
        open_tensor(make_stored(tmp_path / "a.pt"))


def test_saved_tensors_need_no_torch_and_keep_their_strides(tmp_path: Path) -> None:
    torch.save(torch.from_numpy(VALUES.copy()).permute(2, 0, 1)[1:], tmp_path / "view.pt")
    torch.save(torch.nn.Parameter(torch.from_numpy(VALUES.copy())), tmp_path / "parameter.pt")
    torch.save(torch.from_numpy(VALUES.copy()), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert np.array_equal(open_tensor(make_stored(tmp_path / "view.pt")), VALUES.transpose(2, 0, 1)[1:])
    assert np.array_equal(open_tensor(make_stored(tmp_path / "parameter.pt")), VALUES)
    assert np.array_equal(open_tensor(make_stored(tmp_path / "old.pt")), VALUES)
    assert read_dtype_and_shape(tmp_path / "old.pt") == ("float32", (2, 3, 4))


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("zipped", [True, False])
def test_a_hostile_pt_is_refused_with_its_reason(tmp_path: Path, protocol: int, zipped: bool) -> None:
    path = tmp_path / "evil.pt"
    torch.save(Bomb(), path, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    with pytest.raises(BadData, match="holds Python objects, which are not opened") as caught:
        open_tensor(make_stored(path))
    assert "weights_only" not in caught.value.message


@pytest.mark.parametrize("content", [b"", b"garbage", bytes(range(256)) * 4, b"PK\x03\x04" + bytes(100)])
def test_garbage_in_a_pt_is_called_damaged(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "garbage.pt"
    path.write_bytes(content)
    with pytest.raises(BadData, match=r"it is damaged, or|not a complete zip archive"):
        open_tensor(make_stored(path))
