"""Steps, operators and tensors in a dump of the NPU."""

from __future__ import annotations

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from viaduct.rehearsal.tf1_stage.dumping import is_dump_requested, write_step
from viaduct.rehearsal.tf1_stage.snapshot import OutputValue


def make_record(npu: bool = True, **values: Any) -> Any:
    return SimpleNamespace(npu_options=SimpleNamespace(is_on_npu=npu, values={"enable_dump": True, **values}))


@pytest.mark.parametrize(
    ("record", "steps"),
    [
        (make_record(enable_dump=False), []),
        (make_record(npu=False), []),
        (make_record(dump_step="0|3-5|10"), [0, 3, 4, 5, 10]),
        (make_record(dump_step="1"), [1]),
        (make_record(), list(range(12))),
    ],
    ids=["not asked for", "not on the NPU", "ranges", "one", "all"],
)
def test_only_the_steps_that_the_options_name_are_dumped(record: Any, steps: list[int]) -> None:
    assert [step for step in range(12) if is_dump_requested(record, step)] == steps


class Operator:
    """Graph operator with the fields that a dump reads."""

    def __init__(self, type: str, name: str, inputs: list[Any]) -> None:
        self.type, self.name, self.inputs = type, name, inputs


def write(folder: Path, **options: Any) -> list[str]:
    """Dump a constant and the ReLU of it; return the files' names without the time."""
    source = Operator("Const", "layer/x", [])
    tensor = SimpleNamespace(op=source, value_index=0)
    relu = Operator("Relu", "layer/relu.1", [tensor])
    run: Any = SimpleNamespace(session_record=make_record(**options))
    values = [OutputValue(source, 0, np.array([-1.0, 3.0])), OutputValue(relu, 0, np.array([0.0, 3.0]))]
    write_step(run, values, folder)
    names = [path.name.split(".") for path in folder.iterdir()]
    return sorted(".".join(name[:4] + name[5:]) for name in names)


def test_only_outputs_are_dumped_unless_the_mode_says_otherwise(tmp_path: Path) -> None:
    outputs = ["Const.layer_x.1.1.output.0.npy", "Relu.layer_relu_1.2.1.output.0.npy"]
    inputs = ["Relu.layer_relu_1.2.1.input.0.npy"]
    assert write(tmp_path / "default") == outputs
    assert write(tmp_path / "input", dump_mode="input") == inputs
    assert write(tmp_path / "all", dump_mode="all") == sorted(outputs + inputs)


def test_other_layers_than_those_of_the_options_are_left_out(tmp_path: Path) -> None:
    names = write(tmp_path / "one", dump_layer="layer/relu.1 layer/none", dump_mode="all")
    assert {name.split(".")[1] for name in names} == {"layer_relu_1"}


def test_statistics_take_the_place_of_the_tensors(tmp_path: Path) -> None:
    write(tmp_path / "stats", dump_data="stats")
    assert [path.name for path in (tmp_path / "stats").iterdir()] == ["statistic.csv"]
    with (tmp_path / "stats" / "statistic.csv").open() as file:
        first = next(csv.DictReader(file))
    assert [float(first[name]) for name in ("Max Value", "Min Value", "Avg Value")] == [3, -1, 1]
    assert float(first["L2Norm Value"]) == pytest.approx(10**0.5)
    assert first["Shape"] == "2"
