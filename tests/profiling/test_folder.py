"""The files of a profile: what is written is read back, damage is named, and CSV tables are those of msprof."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest

from viaduct.errors import BadData
from viaduct.profiling.folder import PROFILE_FILE, merge_events, read_profile, write_profile
from viaduct.profiling.record import Facts, Profile, Step

from .complete_profile import make_profile, make_steps


def change_field(folder: Path, change: Any) -> None:
    record = json.loads((folder / PROFILE_FILE).read_text())
    change(record)
    (folder / PROFILE_FILE).write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda record: record.pop("schema"), "schema is missing"),
        (lambda record: record.update(schema=99), "schema is 99; this version of viaduct reads schema 1"),
        (lambda record: record.pop("facts"), "facts is missing"),
        (lambda record: record["facts"].update(kind="other"), "facts.kind is 'other'; it must be script"),
        (lambda record: record["steps"][3].update(end_us="late"), r"steps\[3\].end_us is 'late'; it must be a number"),
        (lambda record: record["steps"][2].pop("rank"), r"steps\[2\].rank is missing"),
        (lambda record: record["steps"][1].update(collectives=[7]), r"steps\[1\].collectives\[0\] is 7"),
        (lambda record: record["steps"][1]["collectives"][0].pop("name"), r"collectives\[0\].name is missing"),
        (lambda record: record["samples"][0].update(values={"cpu": None}), r"samples\[0\].values.cpu is None"),
        (lambda record: record["ceilings"].update(flops=3), "ceilings.flops is 3; it must be an object"),
        (lambda record: record["tables"].update(x={"columns": ["a"], "rows": [[1, 2]]}), "has 2 of 1 values"),
        (lambda record: record.update(operators={}), "operators is {}"),
    ],
)
def test_a_damaged_profile_is_named_with_file_and_field(change: Any, reason: str, tmp_path: Path) -> None:
    write_profile(make_profile(), tmp_path)
    change_field(tmp_path, change)
    with pytest.raises(BadData, match=rf"profile\.json is damaged: .*{reason}"):
        read_profile(tmp_path)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff\xfe", b'{"schema": NaN}', b"[" * 100_000])
def test_a_profile_that_is_no_json_object_is_damaged(text: bytes, tmp_path: Path) -> None:
    (tmp_path / PROFILE_FILE).write_bytes(text)
    with pytest.raises(BadData, match=r"profile\.json is damaged"):
        read_profile(tmp_path)


def test_another_folder_is_no_profile(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"is not a profile of viaduct: it has no profile\.json"):
        read_profile(tmp_path)


def test_nothing_is_written_of_a_profile_that_json_cannot_hold(tmp_path: Path) -> None:
    steps = [dataclasses.replace(make_steps()[0], end_us=math.nan)]
    with pytest.raises(ValueError, match="JSON"):
        write_profile(make_profile(steps=steps), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_field_of_a_newer_version_is_skipped(tmp_path: Path) -> None:
    write_profile(make_profile(), tmp_path)
    change_field(tmp_path, lambda record: record["facts"].update(weather="fine"))
    assert read_profile(tmp_path) == make_profile()


def test_every_field_is_read_back(tmp_path: Path) -> None:
    profile = make_profile()
    for part in (profile.facts, profile.steps[1], profile.operators[0]):
        filled = [getattr(part, field.name) for field in dataclasses.fields(part)]
        assert any(value not in (None, "", 0, ()) for value in filled)
    paths = write_profile(profile, tmp_path)
    assert all(path.is_file() for path in paths)
    assert read_profile(tmp_path) == profile


def test_an_empty_profile_is_read_back(tmp_path: Path) -> None:
    profile = Profile(Facts("train.py", "script"))
    write_profile(profile, tmp_path)
    again = read_profile(tmp_path)
    assert again.facts == profile.facts
    assert list(again.steps) == []
    assert again.iteration_us is None


# Several ranks


def test_events_of_several_ranks_keep_apart(tmp_path: Path) -> None:
    events = [{"ph": "X", "pid": 7, "tid": 1, "name": "aten::add", "ts": 1.0, "dur": 2.0}]
    for rank in range(2):
        write_profile(make_profile(rank), tmp_path / f"rank_{rank}", events)
    merged = [event for event in merge_events([tmp_path / "rank_0", tmp_path / "rank_1"]) if event["ph"] == "X"]
    assert len({event["pid"] for event in merged}) == 2
    assert merged[1]["ts"] - merged[0]["ts"] == pytest.approx(1000)


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
