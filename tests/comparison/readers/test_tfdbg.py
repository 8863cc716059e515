"""The debugger's .npy files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from comparison.foreign_dumps import TIME, numbers, tfdbg
from viaduct.comparison.readers import read
from viaduct.comparison.storage import open_tensor


def test_names_are_split_into_operator_output_and_time(tmp_path: Path) -> None:
    tfdbg(tmp_path, {"conv1/BiasAdd:0": numbers(2), "split:1": numbers(3), "a/b.c-d:0": numbers(4)})
    side = read(tmp_path)
    assert side.kind == "tfdbg"
    assert [(t.op, t.role, t.index, t.shape) for t in side.tensors] == [
        ("a_b.c-d", "output", 0, (4,)),
        ("conv1_BiasAdd", "output", 0, (2,)),
        ("split", "output", 1, (3,)),
    ]


def test_the_newest_file_is_read_and_the_others_are_named(tmp_path: Path) -> None:
    for time, value in [(TIME + 5, 5.0), (TIME, 0.0), (TIME + 3, 3.0)]:
        tfdbg(tmp_path, {"a:0": np.full(2, value)}, time)
    side = read(tmp_path)
    assert [open_tensor(tensor).tolist() for tensor in side.tensors] == [[5.0, 5.0]]
    assert "2 files have a newer one" in side.notes[0]


def test_a_file_of_another_name_stays_visible(tmp_path: Path) -> None:
    tfdbg(tmp_path, {"a:0": numbers(2), "b:0": numbers(2)})
    np.save(tmp_path / "odd.npy", numbers(2))
    side = read(tmp_path)
    assert {tensor.op for tensor in side.tensors} == {"a", "b", "odd"}
    assert "odd.npy" in " ".join(side.notes)


def test_damaged_and_object_files_become_faults(tmp_path: Path) -> None:
    tfdbg(tmp_path, {"a:0": numbers(2), "b:0": numbers(2), "c:0": np.array([{}], dtype=object)})
    (tmp_path / f"b.0.{TIME}.npy").write_bytes(b"")
    faults = {tensor.op: tensor.fault for tensor in read(tmp_path).tensors}
    assert not faults["a"]
    assert "not a .npy file" in faults["b"]
    assert "not unpickled" in faults["c"]
