"""msprobe's dump.json and what lies beside it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from comparison.foreign_dumps import msprobe, numbers, tensor_entry
from viaduct.comparison.readers import read
from viaduct.comparison.storage import open_tensor
from viaduct.errors import BadData

IMAGE, CONVOLVED, WEIGHT = numbers(2, 3, 8, 8), numbers(2, 4, 8, 8, seed=1), numbers(4, 3, 3, 3, seed=2)
NORMED, GRADIENT = numbers(2, 4, 8, 8, seed=3), numbers(2, 4, 8, 8, seed=4)


WEIGHT_FILE = "Module.layer1.0.conv1.Conv2d.forward.0.parameters.weight.pt"


def network() -> dict[str, Any]:
    return {
        "Module.Net.forward.0": {"input_args": [tensor_entry(IMAGE, None)], "output": [tensor_entry(NORMED, None)]},
        "Module.layer1.0.conv1.Conv2d.forward.0": {
            "input_args": [tensor_entry(IMAGE, None)],
            "input_kwargs": {"scale": {"type": "float", "value": 1.0}, "mask": tensor_entry(IMAGE, None)},
            "parameters": {"weight": tensor_entry(WEIGHT, WEIGHT_FILE)},
            "output": [tensor_entry(CONVOLVED, "conv_out.pt")],
        },
        "Functional.batch_norm.3.forward": {
            "input_args": [
                tensor_entry(CONVOLVED, None), None, [[tensor_entry(WEIGHT, None)]], {"type": "int", "value": 3},
            ],
            "input_kwargs": {}, "output": [[tensor_entry(NORMED, None)]],
        },
        "Functional.batch_norm.3.backward": {
            "input": [tensor_entry(GRADIENT, None)], "output": [tensor_entry(NORMED, None)],
        },
        "Module.layer1.0.conv1.Conv2d.parameters_grad.0": {"weight": [tensor_entry(WEIGHT, None)]},
    }  # fmt: skip


def dump_network(folder: Path, data: dict[str, Any] | None = None) -> Path:
    msprobe(folder, network() if data is None else data, {"Functional.batch_norm.3.forward": "Module.Net.forward.0"})
    torch.save(torch.from_numpy(CONVOLVED), folder / "dump_tensor_data" / "conv_out.pt")
    torch.save(
        torch.nn.Parameter(torch.from_numpy(WEIGHT)),
        folder / "dump_tensor_data" / WEIGHT_FILE,
    )
    return folder


# What must not be followed.


@pytest.mark.parametrize("name", ["../../secret.pt", "/etc/passwd", "..", "a\0b.pt", "sub/x.pt", 7, ["x"], "..\\x.pt"])
def test_names_that_lead_out_of_the_folder_are_faults(tmp_path: Path, name: object) -> None:
    (tmp_path / "secret.pt").write_bytes(b"x")
    entry = tensor_entry(CONVOLVED, None) | {"data_name": name}
    data = {"Functional.relu.0.forward": {"input_args": [], "output": [entry, tensor_entry(CONVOLVED, "conv_out.pt")]}}
    side = read(dump_network(tmp_path / "step0" / "rank0", data))
    assert "lies outside its folder" in side.tensors[0].fault
    assert side.tensors[0].path is None
    assert np.array_equal(open_tensor(side.tensors[1]), CONVOLVED)


def test_a_link_out_of_the_folder_is_a_fault(tmp_path: Path) -> None:
    folder = dump_network(tmp_path / "rank0")
    torch.save(torch.zeros(2), tmp_path / "secret.pt")
    (folder / "dump_tensor_data" / "conv_out.pt").unlink()
    os.symlink(tmp_path / "secret.pt", folder / "dump_tensor_data" / "conv_out.pt")
    assert (
        "lies outside" in next(t for t in read(folder).tensors if t.op == "layer1.0.conv1" and t.role == "output").fault
    )


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"data": 3}', "\0", '{"data": ' + "[" * 100_000, "\ufeff"])
def test_a_damaged_dump_is_named_and_other_steps_are_read(tmp_path: Path, text: str) -> None:
    dump_network(tmp_path / "step0" / "rank0")
    (tmp_path / "step1" / "rank0").mkdir(parents=True)
    (tmp_path / "step1" / "rank0" / "dump.json").write_text(text)
    side = read(tmp_path)
    assert {tensor.step for tensor in side.tensors if not tensor.fault} == {0}
    assert [tensor.op for tensor in side.tensors if tensor.step == 1] == ["dump.json"]  # refused, not left out
    assert "dump.json" in side.notes[0]
    with pytest.raises(BadData, match="that can be read"):
        read(tmp_path / "step1")


def test_unknown_entries_do_not_hide_the_others(tmp_path: Path) -> None:
    data: dict[str, Any] = {
        "nonsense": {}, "Functional.relu.0.forward": 3, f"Module.conv1.Conv2d.forward.{'9' * 5000}": {},
        "Functional.relu.1.forward": {
            "output": [{"dtype": "torch.float32", "shape": "x", "data_name": "conv_out.pt"},
                       {"dtype": 3, "shape": [-1]}, tensor_entry(CONVOLVED, "gone.pt"),
                       tensor_entry(CONVOLVED, "conv_out.pt")],
        },
    }  # fmt: skip
    nested: Any = tensor_entry(CONVOLVED, None)
    for _ in range(50):
        nested = [nested]
    data["Functional.deep.0.forward"] = {"output": nested}
    side = read(dump_network(tmp_path / "rank0", data))
    assert [bool(tensor.fault) for tensor in side.tensors] == [True, True, True, True, True, True, False, True]
    assert [tensor.op for tensor in side.tensors[:2]] == ["nonsense", "Functional.relu.0.forward"]
    assert "gone.pt is missing" in side.tensors[5].fault
    assert "no shape" in side.tensors[7].fault
    assert "nonsense" in side.notes[0]


# What must be read.


@pytest.mark.parametrize("level", ["", "step3", "step3/rank1", "step3/rank1/dump.json"])
def test_any_folder_level_may_be_given(tmp_path: Path, level: str) -> None:
    dump_network(tmp_path / "step3" / "rank1")
    side = read(tmp_path / level)
    assert side.kind == "msprobe"
    assert {(tensor.step, tensor.rank) for tensor in side.tensors} == {(3, 1)}
    assert side.settings["level"] == "mix"


def test_processes_without_a_rank_are_numbered(tmp_path: Path) -> None:
    for process in (4711, 4712):
        dump_network(tmp_path / "step0" / f"proc{process}")
    assert {tensor.rank for tensor in read(tmp_path).tensors} == {0, 1}


def test_roles_names_and_numbers(tmp_path: Path) -> None:
    side = read(dump_network(tmp_path))
    found = {(t.op, t.role, t.parameter or t.index): t for t in side.tensors}
    assert list(found) == [
        ("Net", "input", 0), ("Net", "output", 0),
        ("layer1.0.conv1", "input", 0), ("layer1.0.conv1", "input", 1), ("layer1.0.conv1", "parameter", "weight"),
        ("layer1.0.conv1", "output", 0),
        ("Functional.batch_norm.3", "input", 0), ("Functional.batch_norm.3", "input", 1),
        ("Functional.batch_norm.3", "output", 0),
        ("Functional.batch_norm.3", "grad_output", 0), ("Functional.batch_norm.3", "grad_input", 0),
        ("layer1.0.conv1", "gradient", "weight"),
    ]  # fmt: skip
    output = found["layer1.0.conv1", "output", 0]
    assert (output.op_type, output.dtype, output.shape) == ("Conv2d", "float32", (2, 4, 8, 8))
    assert np.array_equal(open_tensor(output), CONVOLVED)
    assert np.array_equal(open_tensor(found["layer1.0.conv1", "parameter", "weight"]), WEIGHT)


def test_statistics_are_read_if_no_tensor_was_dumped(tmp_path: Path) -> None:
    tensor = next(t for t in read(dump_network(tmp_path)).tensors if t.role == "grad_output")
    assert tensor.path is None
    assert not tensor.fault
    assert tensor.statistics is not None
    assert tensor.statistics["max"] == pytest.approx(float(GRADIENT.max()))
    with pytest.raises(BadData, match="statistics only"):
        open_tensor(tensor)


def test_edges_are_found_by_shape_and_statistics(tmp_path: Path) -> None:
    assert read(dump_network(tmp_path)).edges == {"Functional.batch_norm.3": ("layer1.0.conv1",)}


def test_nan_and_missing_statistics_are_read(tmp_path: Path) -> None:
    entry = tensor_entry(CONVOLVED, None) | {"Max": float("nan"), "Min": None, "Mean": "nan", "Norm": "x"}
    data = {"Functional.relu.0.forward": {"output": [entry]}}
    [tensor] = read(dump_network(tmp_path, json.loads(json.dumps(data)))).tensors
    assert tensor.statistics is not None
    assert set(tensor.statistics) == {"max", "mean"}


def test_statistics_of_integers_that_float64_rounds_stay_exact(tmp_path: Path) -> None:
    entry = tensor_entry(CONVOLVED, None) | {"Max": 2**53 + 1, "Min": True}
    data = {"Functional.relu.0.forward": {"output": [entry]}}
    [tensor] = read(dump_network(tmp_path, json.loads(json.dumps(data)))).tensors
    assert tensor.statistics is not None
    assert (int(tensor.statistics["max"]), tensor.statistics["min"]) == (2**53 + 1, 1.0)
