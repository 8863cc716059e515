"""The trace of a profile: it has only events that viewers draw, and the file is read back."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from viaduct.errors import BadData
from viaduct.profiling import trace
from viaduct.profiling.folder import read_profile, write_profile
from viaduct.profiling.record import Collective, Profile, Step
from viaduct.profiling.trace import build_trace

from .complete_profile import make_profile, make_steps

RECORDED: list[dict[str, Any]] = [
    {"ph": "M", "pid": 1, "tid": 0, "name": "process_name", "args": {"name": "python"}},
    {"ph": "X", "pid": 1, "tid": 5, "name": "aten::add", "ts": 3.0, "dur": 2.0, "args": {"flops": math.nan}},
    {"ph": "B", "pid": 1, "tid": 6, "name": "outer", "ts": 1.0},
    {"ph": "B", "pid": 1, "tid": 6, "name": "inner", "ts": 2.0},
    {"ph": "E", "pid": 1, "tid": 6, "ts": 3.0},
    {"ph": "s", "pid": 1, "tid": 5, "id": 4, "cat": "ac2g", "name": "ac2g", "ts": 3.0},
    {"ph": "f", "pid": 2, "tid": 5, "id": 4, "cat": "ac2g", "name": "ac2g", "ts": 4.0, "bp": "e"},
    {"ph": "s", "pid": 1, "tid": 5, "id": 9, "cat": "ac2g", "name": "ac2g", "ts": 3.0},
    {"ph": "X", "pid": 2, "tid": 5, "name": "kernel", "ts": 4.0, "dur": 1.0},
    {"ph": "X", "pid": 2, "tid": 5, "name": "broken", "ts": math.inf, "dur": 1.0},
    {"ph": "X", "pid": 2, "tid": 5, "name": "endless", "ts": 1.0},
    {"ph": "E", "pid": 2, "tid": 9, "ts": 3.0},
    {"ph": "X", "pid": 2, "tid": 5, "name": "before the first step", "ts": -40.0, "dur": 1.0},
    {"name": "nothing"},
]


def check_trace(trace: dict[str, Any]) -> None:
    """Assert what every viewer needs."""
    events = trace["traceEvents"]
    for event in events:
        assert {"ph", "pid", "tid"} <= set(event), event
        for name in ("ts", "dur"):
            if name in event:
                assert math.isfinite(event[name]), event
                assert event[name] >= 0, event
        assert event["ph"] == "M" or "ts" in event
    begins = Counter((event["pid"], event["tid"]) for event in events if event["ph"] == "B")
    ends = Counter((event["pid"], event["tid"]) for event in events if event["ph"] == "E")
    assert begins == ends
    flows = {phase: {(e["cat"], e["id"]) for e in events if e["ph"] == phase} for phase in ("s", "f")}
    assert flows["s"] == flows["f"]
    named = {event["pid"] for event in events if event["ph"] == "M" and event["name"] == "process_name"}
    assert named == {event["pid"] for event in events}


def slices(trace: dict[str, Any], process: str) -> list[dict[str, Any]]:
    events = trace["traceEvents"]
    pids = {e["pid"] for e in events if e.get("name") == "process_name" and e["args"]["name"] == process}
    return [event for event in events if event["pid"] in pids and event["ph"] == "X"]


def test_events_that_no_viewer_draws_are_left_out(tmp_path: Path) -> None:
    write_profile(make_profile(), tmp_path, RECORDED)
    trace = json.loads((tmp_path / "trace.json").read_text())
    check_trace(trace)
    names = {event.get("name") for event in trace["traceEvents"]}
    assert {"aten::add", "kernel", "inner", "before the first step"} <= names
    assert not {"broken", "endless", "outer"} & names


def test_an_empty_profile_has_an_empty_trace() -> None:
    trace = build_trace(Profile(make_profile().facts))
    check_trace(trace)
    assert trace["traceEvents"] == []


def test_the_step_trace_is_drawn_as_msprof_draws_it() -> None:
    drawn = slices(build_trace(make_profile()), "Step Trace")
    step = [event for event in drawn if 100 <= event["ts"] < 200]
    assert [event["name"] for event in step] == [
        *("Iteration 1", "Data_aug Bound", "FP_BP Time 1", "Iteration Refresh 1"),
        "Reduce_1_0",
    ]
    times = {event["name"]: event["dur"] for event in step}
    parts = times["Data_aug Bound"] + times["FP_BP Time 1"] + times["Iteration Refresh 1"]
    assert times["Iteration 1"] == parts
    assert step[-1]["args"] == {"operation": "all_reduce", "bytes": 4096, "exposed us": 7.0}


def test_collectives_that_overlap_are_on_different_lines() -> None:
    reduces = (Collective("a", 10.0, 20.0), Collective("b", 15.0, 5.0), Collective("c", 40.0, 5.0))
    profile = make_profile(steps=[Step(0, 0, 0.0, 50.0, 60.0, None, None, reduces)])
    drawn = [event for event in slices(build_trace(profile), "Step Trace") if event["name"].startswith("Reduce")]
    lines = {event["name"]: event["tid"] for event in drawn}
    assert lines["Reduce_0_0"] != lines["Reduce_0_1"]
    assert lines["Reduce_0_0"] == lines["Reduce_0_2"]
    assert 0 not in lines.values()


def test_every_rank_has_its_own_process() -> None:
    profile = make_profile(steps=[*make_steps(0), *make_steps(1)])
    trace = build_trace(profile, RECORDED)
    check_trace(trace)
    assert len(slices(trace, "Step Trace, rank 0")) == len(slices(trace, "Step Trace, rank 1")) > 0


def test_memory_and_system_figures_are_counters() -> None:
    counters = [event for event in build_trace(make_profile())["traceEvents"] if event["ph"] == "C"]
    values = {(event["name"], event["ts"]): event["args"]["value"] for event in counters}
    assert values["allocated MiB", 50.0] == 3.0
    assert values["reserved MiB", 0.0] == 2.0
    assert ("reserved MiB", 50.0) not in values
    assert values["cpu 0 %", 200.0] == 75.5


def test_a_large_trace_is_packed_and_the_old_one_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [{"ph": "X", "pid": 7, "tid": 1, "name": "aten::add", "ts": 1.0, "dur": 2.0}]
    write_profile(make_profile(), tmp_path, events)
    assert (tmp_path / "trace.json").is_file()
    monkeypatch.setattr(trace, "PACK_FROM_BYTES", 100)
    monkeypatch.setattr(trace, "WARN_FROM_BYTES", 100)
    paths = write_profile(make_profile(), tmp_path, events)
    assert tmp_path / "trace.json.gz" in paths
    assert not (tmp_path / "trace.json").exists()
    assert next(event["name"] for event in trace.read_events(tmp_path)) == "aten::add"
    assert any("MB when unpacked" in note for note in read_profile(tmp_path).facts.notes)


def test_without_a_trace_there_are_no_events(tmp_path: Path) -> None:
    assert trace.read_events(tmp_path) == []


@pytest.mark.parametrize("content", [b"", b"{", b'{"traceEvents": []}', b'{"otherData": 3}'])
def test_a_damaged_trace_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(content)
    with pytest.raises(BadData, match=r"trace\.json is damaged"):
        trace.read_events(tmp_path)


@pytest.mark.parametrize(
    "damage", [lambda packed: packed[:-20], lambda packed: b"no gzip", lambda packed: packed[:40] + bytes(len(packed))]
)
def test_a_damaged_packed_trace_is_named(
    damage: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "PACK_FROM_BYTES", 100)
    path, _ = trace.write_trace(make_profile(), tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BadData, match=r"trace\.json\.gz is damaged"):
        trace.read_events(tmp_path)


def test_numbers_that_json_does_not_know_become_null() -> None:
    event = json.loads(trace.encode_event({"name": "loss", "args": {"value": math.nan, "step": 3}}))
    assert event == {"name": "loss", "args": {"value": None, "step": 3}}
