"""The record of a rehearsal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from viaduct.comparison import readers
from viaduct.comparison.readers.rehearsal import AFTER_CALLS, can_read, read
from viaduct.comparison.storage import open_tensor
from viaduct.errors import BadData

ONES = np.ones(3, np.float32)


def write_rank(record: Path, rank: int = 0) -> Path:
    """Write what a rehearsal of two steps records: the first module is called twice."""
    folder = record / "observed" / f"rank-{rank}"
    folder.mkdir(parents=True)
    np.savez(folder / "losses.npz", **{"0 0": 2 * ONES, "1 0": ONES, "1 1": ONES})
    calls = ("00000 input 0", "00001 layer1.conv", "00001 layer1.conv input 0", "00002 layer1.conv", "00003 a module 2")
    np.savez(folder / "forward.npz", **{name: index * ONES for index, name in enumerate(calls)})
    np.savez(folder / "gradients.npz", **{"layer1.conv.weight": ONES})
    np.savez(folder / "weights.npz", **{"layer1.conv.weight": ONES})
    return folder


def test_other_folders_are_not_taken_for_a_record(tmp_path: Path) -> None:
    (tmp_path / "observed" / "rank-0").mkdir(parents=True)
    (tmp_path / "observed" / "rank-x").mkdir()
    (tmp_path / "observed" / "rank-x" / "losses.npz").write_bytes(b"")
    assert not can_read(tmp_path)
    with pytest.raises(BadData, match="holds no tensors"):
        read(tmp_path)


def test_every_tensor_has_its_module_role_call_and_step(tmp_path: Path) -> None:
    write_rank(tmp_path)
    tensors = [(t.step, t.op, t.role, t.index, t.order, t.call) for t in readers.read(tmp_path).tensors]
    assert tensors == [
        (0, "network", "input", 0, 0, 0),
        (0, "layer1.conv", "output", 0, 1, 0),
        (0, "layer1.conv", "input", 0, 1, 0),
        (0, "layer1.conv", "output", 0, 2, 1),
        (0, "a module 2", "output", 0, 3, 0),
        (0, "loss", "output", 0, AFTER_CALLS, 0),
        (0, "layer1.conv.weight", "gradient", 0, AFTER_CALLS + 1, 0),
        (1, "loss", "output", 0, AFTER_CALLS, 0),
        (1, "loss", "output", 1, AFTER_CALLS, 0),
        (2, "layer1.conv.weight", "parameter", 0, 0, 0),
    ]


def test_the_values_are_those_of_the_archive(tmp_path: Path) -> None:
    write_rank(tmp_path)
    second = next(tensor for tensor in read(tmp_path).tensors if tensor.call == 1)
    assert open_tensor(second).tolist() == [3, 3, 3]
    assert (second.dtype, second.shape) == ("float32", (3,))


def test_ranks_are_distinguished_by_their_folders(tmp_path: Path) -> None:
    for rank in (0, 10, 2):
        write_rank(tmp_path, rank)
    assert {tensor.rank for tensor in read(tmp_path).tensors} == {0, 2, 10}


@pytest.mark.parametrize(("file", "key"), [("losses.npz", "loss"), ("forward.npz", "conv")])
def test_a_key_that_rehearsals_do_not_write_is_a_fault(tmp_path: Path, file: str, key: str) -> None:
    np.savez(write_rank(tmp_path) / file, **{key: np.zeros(2)})
    assert [tensor.fault for tensor in read(tmp_path).tensors if tensor.fault] == [
        f"{file} has an unknown key, {key!r}"
    ]


def test_a_damaged_archive_is_a_fault_and_the_others_are_read(tmp_path: Path) -> None:
    (write_rank(tmp_path) / "gradients.npz").write_bytes(b"PK")
    tensors = read(tmp_path).tensors
    assert [tensor.op for tensor in tensors if "gradients.npz" in tensor.fault] == ["gradients"]
    assert {tensor.op for tensor in tensors} >= {"loss", "layer1.conv", "layer1.conv.weight"}
