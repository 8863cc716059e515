"""Plain folders and single files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from comparison.foreign_dumps import fused_network, npu, numbers, tfdbg
from viaduct.comparison.readers import describe_swap, read
from viaduct.comparison.records import StoredDump
from viaduct.comparison.storage import open_tensor
from viaduct.errors import BadData


def test_names_are_paths_and_keys(tmp_path: Path) -> None:
    (tmp_path / "enc").mkdir()
    np.save(tmp_path / "enc" / "conv10.npy", numbers(2))
    np.save(tmp_path / "enc" / "conv2.npy", numbers(3))
    np.savez(tmp_path / "more.npz", x=numbers(4), y=numbers(5))
    save_file({"fc.weight": numbers(2, 3), "fc.bias": numbers(2)}, tmp_path / "weights.safetensors")
    side = read(tmp_path)
    assert side.kind == "folder"
    assert [(t.op, t.role, t.parameter, t.shape) for t in side.tensors] == [
        ("enc/conv2", "output", "", (3,)),
        ("enc/conv10", "output", "", (2,)),
        ("more/x", "output", "", (4,)),
        ("more/y", "output", "", (5,)),
        ("weights/fc", "parameter", "bias", (2,)),
        ("weights/fc", "parameter", "weight", (2, 3)),
    ]


def test_steps_ranks_and_roles_come_from_names(tmp_path: Path) -> None:
    for step in (0, 5):
        folder = tmp_path / f"step_{step}" / "rank1"
        folder.mkdir(parents=True)
        for name in ("conv1.input.0", "conv1.output.1", "conv1.grad_output.0", "conv1.weight.gradient"):
            np.save(folder / f"{name}.npy", numbers(2))
    tensors = [(t.op, t.role, t.index, t.parameter) for t in read(tmp_path).tensors if t.step == 5 and t.rank == 1]
    assert sorted(tensors) == [
        ("conv1", "grad_output", 0, ""),
        ("conv1", "gradient", 0, "weight"),
        ("conv1", "input", 0, ""),
        ("conv1", "output", 1, ""),
    ]


@pytest.mark.parametrize("suffix", ["npy", "npz", "safetensors"])
def test_a_single_file_is_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    if suffix == "safetensors":
        save_file({"x": numbers(2)}, path)
    else:
        np.savez(path, x=numbers(2)) if suffix == "npz" else np.save(path, numbers(2))
    [tensor] = read(path).tensors
    assert tensor.op == ("a" if suffix == "npy" else "x")
    assert open_tensor(tensor).shape == (2,)


def test_damaged_members_and_links_are_faults_and_the_rest_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    folder.mkdir()
    np.savez(folder / "a.npz", good=numbers(2), bad=np.array([{}], dtype=object))
    (folder / "b.npz").write_bytes(b"PK nonsense")
    np.save(tmp_path / "secret.npy", numbers(2))
    os.symlink(tmp_path / "secret.npy", folder / "c.npy")
    (folder / "readme.txt").write_text("x")
    side = read(folder)
    faults = {tensor.op: tensor.fault for tensor in side.tensors}
    assert faults["a/good"] == ""
    assert "not unpickled" in faults["a/bad"]
    assert "not a complete zip archive" in faults["b"]
    assert "leaves the folder" in faults["c"]
    assert "readme.txt" in " ".join(side.notes)


def test_file_names_may_have_any_characters(tmp_path: Path) -> None:
    for name in ("<script>", "=cmd()", "a\nb", "ünï", " blank ", "--flag", "..x"):
        np.save(tmp_path / f"{name}.npy", numbers(2))
    assert {t.op for t in read(tmp_path).tensors} >= {"<script>", "=cmd()", "a\nb", "ünï", " blank ", "--flag", "..x"}


def test_what_is_no_dump_is_refused_with_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(BadData) as error:
        read(tmp_path)
    assert "It holds: notes.txt" in str(error.value)
    with pytest.raises(BadData, match="there is no"):
        read(tmp_path / "nowhere")
    with pytest.raises(BadData, match="there is no"):
        read(Path("a\0b"))


def test_swapped_directories_are_noticed(tmp_path: Path) -> None:
    ops, truth = fused_network()
    left, right = read(npu(tmp_path / "npu", ops)), read(tfdbg(tmp_path / "gpu", truth))
    assert describe_swap(left, right) is None
    warning = describe_swap(right, left)
    assert warning is not None
    assert "viaduct compare" in warning
    cpu, cuda = (StoredDump(tmp_path, "viaduct", (), settings={"device": device}) for device in ("cpu", "cuda:0"))
    assert describe_swap(cuda, cpu) is None
    assert "dumped on the cpu" in str(describe_swap(cpu, cuda))
    assert describe_swap(cpu, cpu) is None
