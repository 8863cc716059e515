"""The CSV files that lie beside profile.json."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

import pytest

from viaduct.profiling.folder import write_profile
from viaduct.profiling.record import Step

from .complete_profile import make_profile, make_steps


def test_the_step_trace_has_the_columns_of_msprof_and_its_times_add_up(tmp_path: Path) -> None:
    write_profile(make_profile(), tmp_path)
    with (tmp_path / "step_trace.csv").open() as file:
        rows = list(csv.reader(file))
    columns = [
        *("Device_id", "Iteration ID", "FP Start(us)", "BP End(us)", "Iteration End(us)", "Iteration Time(us)"),
        *("FP to BP Time(us)", "Iteration Refresh(us)", "Data Aug Bound(us)", "Model ID"),
        *("Reduce Start(us)", "Reduce Duration(us)", "Rank", "Loader Wait(us)", "Note"),
    ]
    assert rows[0] == columns
    assert rows[1][8] == "N/A"  # no iteration before the first
    for row in rows[2:]:
        iteration, compute, update, data = map(float, row[5:9])
        assert iteration == pytest.approx(compute + update + data)
        assert row[9] == "N/A"
    assert (rows[2][10], rows[2][11], rows[2][13]) == ("175.000", "12.000", "8.000")


def test_steps_with_fewer_collectives_are_filled_up(tmp_path: Path) -> None:
    steps = [*make_steps(count=2), Step(0, 2, 210.0, 280.0, 300.0, 200.0)]
    write_profile(make_profile(steps=steps), tmp_path)
    with (tmp_path / "step_trace.csv").open() as file:
        rows = list(csv.reader(file))
    assert len({len(row) for row in rows}) == 1
    assert rows[3][10:] == ["N/A", "N/A", "0", "N/A", ""]


def test_the_step_trace_marks_steps_that_are_not_counted(tmp_path: Path) -> None:
    kinds = ["", "evaluation", "recording", "recording, checkpoint"]
    pairs = zip(make_steps(count=len(kinds)), kinds, strict=True)
    steps = [dataclasses.replace(step, interrupted_by=kind) for step, kind in pairs]
    write_profile(make_profile(steps=steps), tmp_path)
    with (tmp_path / "step_trace.csv").open() as file:
        assert [row["Note"] for row in csv.DictReader(file)] == kinds


def test_the_most_expensive_operator_stands_first(tmp_path: Path) -> None:
    write_profile(make_profile(), tmp_path)
    with (tmp_path / "operators.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == ["aten::convolution", "aten::add"]
    assert rows[0]["device_us"] == "N/A"
    with (tmp_path / "system.csv").open() as file:
        samples = list(csv.DictReader(file))
    assert samples[0] == {"time_us": "0.000", "cpu 0 %": "50.000", "memory MiB": "N/A"}
