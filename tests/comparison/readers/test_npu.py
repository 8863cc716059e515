"""NPU dump directories: their levels, their file names, and numbers for names that are too long."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from comparison.foreign_dumps import TIME, fused_network, npu, npu_file, numbers
from viaduct.comparison.readers import read
from viaduct.comparison.readers.npu import count_before_time, parse_call, split_name
from viaduct.comparison.storage import open_tensor
from viaduct.errors import BadData

LEVELS = ["", "20201209083219", "20201209083219/0", "20201209083219/0/ge_default_20201209083353_71"]
LEVELS += [LEVELS[-1] + "/1", LEVELS[-1] + "/1/5"]


def save(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        with open(folder / name, "wb") as file:
            np.save(file, numbers(3, seed=number))
    return folder


# What must not be taken for a tensor.


def test_raw_files_are_named_never_dropped(tmp_path: Path) -> None:
    save(tmp_path, f"Relu.relu1.7.3.{TIME}.output.0.npy")
    (tmp_path / f"Conv2D.conv1.6.3.{TIME - 1}").write_bytes(b"\x10\0\0\0\0\0\0\0raw")
    side = read(tmp_path)
    assert side.kind == "npu"
    assert [(tensor.op, tensor.op_type) for tensor in side.tensors] == [("conv1", "Conv2D"), ("relu1", "Relu")]
    assert "msaccucmp.py convert" in side.tensors[0].fault
    assert "1 files are a raw dump file" in " ".join(side.notes)
    with pytest.raises(BadData, match="only CANN can read"):
        open_tensor(side.tensors[0])


def test_a_raw_file_beside_its_converted_one_is_left_out(tmp_path: Path) -> None:
    save(tmp_path, f"Relu.relu1.7.3.{TIME}.output.0.npy")
    (tmp_path / f"Relu.relu1.7.3.{TIME}").write_bytes(b"raw")
    side = read(tmp_path)
    assert [tensor.fault for tensor in side.tensors] == [""]


def test_a_directory_of_raw_files_alone_is_still_a_dump(tmp_path: Path) -> None:
    (tmp_path / f"Relu.relu1.7.3.{TIME}").write_bytes(b"raw")
    side = read(tmp_path)
    assert side.kind == "npu"
    assert all(tensor.fault for tensor in side.tensors)


def test_a_number_without_mapping_is_named(tmp_path: Path) -> None:
    save(tmp_path, f"Relu.relu1.7.3.{TIME}.output.0.npy", "12345.npy")
    side = read(tmp_path)
    assert [tensor.fault for tensor in side.tensors if tensor.fault] == [
        "12345.npy is not named as NPU dumps are and no mapping.csv beside it names it"
    ]


def test_links_that_leave_the_folder_are_not_followed(tmp_path: Path) -> None:
    secret = (
        save(tmp_path / "elsewhere", f"Relu.secret.1.3.{TIME}.output.0.npy") / f"Relu.secret.1.3.{TIME}.output.0.npy"
    )
    dump = save(tmp_path / "dump", f"Relu.relu1.7.3.{TIME}.output.0.npy")
    os.symlink(secret, dump / f"Relu.link.1.3.{TIME}.output.0.npy")
    os.symlink(secret.parent, dump / "folder")
    side = read(dump)
    assert [tensor.op for tensor in side.tensors if not tensor.fault] == ["relu1"]
    assert ["leaves the folder" in tensor.fault for tensor in side.tensors] == [False, True]
    assert "links that leave the folder were not followed" in " ".join(side.notes)


def test_a_damaged_tensor_leaves_the_others(tmp_path: Path) -> None:
    save(tmp_path, f"Relu.a.1.3.{TIME}.output.0.npy", f"Relu.b.2.3.{TIME}.output.0.npy")
    (tmp_path / f"Relu.a.1.3.{TIME}.output.0.npy").write_bytes(b"\x93NUMPY")
    faults = {tensor.op: tensor.fault for tensor in read(tmp_path).tensors}
    assert "cut short" in faults["a"]
    assert not faults["b"]


# Names.


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"Conv2D.conv1.12.3.{TIME}.output.0.npy", ("Conv2D", "conv1", "output", 0)),
        (f"Conv2D.conv1.12.{TIME}.input.11.npy", ("Conv2D", "conv1", "input", 11)),
        (f"Conv2D.conv1.12.3.{TIME}.1.2.3.0.output.0.npy", ("Conv2D", "conv1", "output", 0)),
        (f"Conv2D.conv1.12.3.{TIME}.1.2.3.output.0.npy", ("Conv2D", "conv1", "output", 0)),
        (f"Conv2D.layer1.0.conv1.12.3.{TIME}.output.0.npy", ("Conv2D", "layer1.0.conv1", "output", 0)),
        (f"Relu.features.0.12.3.{TIME}.output.0.npy", ("Relu", "features.0", "output", 0)),
        (f"Cast.trans_Cast_12.12.3.{TIME}.output.0.npy", ("Cast", "trans_Cast_12", "output", 0)),
        (f"Conv2D.conv1.12.3.{TIME}.output.0.2x3x4x4.NCHW.npy", ("Conv2D", "conv1", "output", 0)),
        ("Conv2D.conv1.12.3.99.output.0.npy", ("Conv2D", "conv1", "output", 0)),
    ],
)
def test_names_are_split_into_parts(tmp_path: Path, name: str, expected: tuple[str, str, str, int]) -> None:
    save(tmp_path, name)
    [tensor] = read(tmp_path).tensors
    assert (tensor.op_type, tensor.op, tensor.role, tensor.index) == expected


def test_numbers_in_an_operators_name_are_recognised_from_the_other_files() -> None:
    old = [f"Relu.features.0.12.{TIME}", f"Conv2D.conv.11.{TIME}"]
    before = count_before_time(old)
    assert [parse_call(text, before).op for text in old] == ["features.0", "conv"]
    new = [f"Relu.features.0.12.3.{TIME}", f"Conv2D.conv.11.3.{TIME}", f"Add.a.12.3.{TIME}.1.2.3.0"]
    before = count_before_time(new)
    assert [parse_call(text, before).op for text in new] == ["features.0", "conv", "a"]


def test_other_names_are_left_alone() -> None:
    for name in (
        "conv1_BiasAdd.0.1607502000000000.npy",
        "weights.npy",
        "dump.json",
        "1.npy",
        "a.b.npy",
        ".output.0.npy",
        f"Conv2D.conv1.1.{'9' * 5000}.1.2.output.0.npy",  # from a mapping.csv: longer than int() accepts
    ):
        assert split_name(name) is None, name


def test_execution_order_follows_the_time_and_repeated_calls_are_counted(tmp_path: Path) -> None:
    save(
        tmp_path,
        f"Relu.second.2.3.{TIME + 2}.output.0.npy",
        f"Conv2D.first.9.3.{TIME}.output.0.npy",
        f"Conv2D.first.9.3.{TIME + 7}.output.0.npy",
        f"Conv2D.first.9.3.{TIME}.input.0.npy",
    )
    tensors = [(tensor.op, tensor.role, tensor.order, tensor.call) for tensor in read(tmp_path).tensors]
    assert tensors == [("first", "input", 0, 0), ("first", "output", 0, 0), ("second", "output", 1, 0),
                       ("first", "output", 2, 1)]  # fmt: skip


# Levels.


@pytest.mark.parametrize("level", LEVELS)
def test_any_folder_level_may_be_given(tmp_path: Path, level: str) -> None:
    ops, _ = fused_network()
    npu(tmp_path, ops, step=5)
    side = read(tmp_path / level)
    assert side.kind == "npu"
    assert {(tensor.step, tensor.rank) for tensor in side.tensors} == {(5, 0)}
    assert side.settings["model"] == "ge_default_20201209083353_71/1"
    assert len(side.tensors) == sum(len(op.dump) for op in ops)


def test_steps_stay_steps_and_devices_become_ranks(tmp_path: Path) -> None:
    for device in (0, 3):
        for step in (0, 10):
            save(tmp_path / f"20201209083219/{device}/model/1/{step}", npu_file("Relu", "a", 1, "output", 0))
    assert {(t.step, t.rank) for t in read(tmp_path).tensors} == {(0, 0), (10, 0), (0, 3), (10, 3)}


def test_the_newest_run_and_the_largest_model_are_chosen_and_the_others_named(tmp_path: Path) -> None:
    name = npu_file("Relu", "a", 1, "output", 0)
    save(tmp_path / "20201209083219/0/model/1/0", name)
    save(tmp_path / "20210101000000/0/small/2/0", name)
    save(tmp_path / "20210101000000/0/model/1/0", name, npu_file("Relu", "b", 2, "output", 0))
    side = read(tmp_path)
    assert side.settings == {"device": "npu", "model": "model/1", "run": "20210101000000"}
    assert len(side.tensors) == 2
    assert "20201209083219" in side.notes[0]
    assert "small/2 (1 files)" in side.notes[1]


def test_a_flat_folder_is_step_zero(tmp_path: Path) -> None:
    [tensor] = read(save(tmp_path / "my_dump", npu_file("Relu", "a", 1, "output", 0))).tensors
    assert (tensor.step, tensor.rank) == (0, 0)


# mapping.csv.


def test_numbers_are_looked_up_in_the_mapping(tmp_path: Path) -> None:
    long = "block/" * 50 + "conv"
    original = f"Conv2D.{long.replace('/', '_')}.12.3.{TIME}"
    save(tmp_path, "111.npy", "222.output.1.npy", "333.npy", npu_file("Relu", "a", 1, "output", 0))
    (tmp_path / "444").write_bytes(b"raw")
    (tmp_path / "mapping.csv").write_text(
        f"111,{original}.output.0.npy\n222,{original}\n333.npy,Relu.third.13.3.{TIME + 1}\n444,{original[:-1]}9\n"
    )
    tensors = {(t.op, t.role, t.index): t for t in read(tmp_path).tensors}
    flat = long.replace("/", "_")
    assert set(tensors) == {(flat, "output", 0), (flat, "output", 1), ("third", "output", 0), ("a", "output", 0)}
    assert open_tensor(tensors[flat, "output", 1]).tolist() == numbers(3, seed=1).tolist()
    assert any("raw dump file" in t.fault for t in read(tmp_path).tensors)


def test_names_in_a_mapping_never_become_paths(tmp_path: Path) -> None:
    dump = save(tmp_path / "dump", "111.npy", "222.npy")
    (dump / "mapping.csv").write_bytes(
        b"111,../../../etc/passwd\n222,Relu.../../evil.12.3.1607502000000000.output.0.npy\n\0,\0\n333\n"
    )
    side = read(dump)
    assert any("can have: ../../../etc/passwd" in note for note in side.notes)
    assert any("1 of 3 lines are damaged" in note for note in side.notes)
    assert all(tensor.path is None or tensor.path.parent == dump for tensor in side.tensors)
    assert [tensor.op for tensor in side.tensors if not tensor.fault] == ["../../evil"]
    assert [tensor.fault for tensor in side.tensors if tensor.fault] == [
        "111.npy is not named as NPU dumps are and no mapping.csv beside it names it"
    ]


def test_a_mapping_that_is_not_text_is_noted(tmp_path: Path) -> None:
    save(tmp_path, npu_file("Relu", "a", 1, "output", 0))
    (tmp_path / "mapping.csv").write_bytes(bytes(range(256)) * 40)
    side = read(tmp_path)
    assert [tensor.op for tensor in side.tensors] == ["a"]
    assert "mapping.csv" in side.notes[0]


def test_a_single_file_is_read_alone_with_its_mapping(tmp_path: Path) -> None:
    save(tmp_path, "111.npy", npu_file("Relu", "a", 1, "output", 0))
    (tmp_path / "mapping.csv").write_text(f"111,Conv2D.long.12.3.{TIME}.output.0.npy\n")
    assert [tensor.op for tensor in read(tmp_path / "111.npy").tensors] == ["long"]
    assert [tensor.op for tensor in read(tmp_path / npu_file("Relu", "a", 1, "output", 0)).tensors] == ["a"]


def test_a_mapping_of_another_tool_does_not_make_a_folder_an_npu_dump(tmp_path: Path) -> None:
    save(tmp_path, "conv.npy")
    (tmp_path / "mapping.csv").write_text("a,b\n")
    assert read(tmp_path).kind == "folder"
