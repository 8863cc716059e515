"""The trace of a profile as a file."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from viaduct.errors import BadData
from viaduct.profiling import trace_file
from viaduct.profiling.folder import read_profile, write_profile

from .complete_profile import make_profile


def test_a_large_trace_is_packed_and_the_old_one_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [{"ph": "X", "pid": 7, "tid": 1, "name": "aten::add", "ts": 1.0, "dur": 2.0}]
    write_profile(make_profile(), tmp_path, events)
    assert (tmp_path / "trace.json").is_file()
    monkeypatch.setattr(trace_file, "PACK_FROM_BYTES", 100)
    monkeypatch.setattr(trace_file, "WARN_FROM_BYTES", 100)
    paths = write_profile(make_profile(), tmp_path, events)
    assert tmp_path / "trace.json.gz" in paths
    assert not (tmp_path / "trace.json").exists()
    assert next(event["name"] for event in trace_file.read_events(tmp_path)) == "aten::add"
    assert any("MB when unpacked" in note for note in read_profile(tmp_path).facts.notes)


def test_without_a_trace_there_are_no_events(tmp_path: Path) -> None:
    assert trace_file.read_events(tmp_path) == []


@pytest.mark.parametrize("content", [b"", b"{", b'{"traceEvents": []}', b'{"otherData": 3}'])
def test_a_damaged_trace_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(content)
    with pytest.raises(BadData, match=r"trace\.json is damaged"):
        trace_file.read_events(tmp_path)


@pytest.mark.parametrize(
    "damage", [lambda packed: packed[:-20], lambda packed: b"no gzip", lambda packed: packed[:40] + bytes(len(packed))]
)
def test_a_damaged_packed_trace_is_named(
    damage: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_file, "PACK_FROM_BYTES", 100)
    path, _ = trace_file.write_trace(make_profile(), tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BadData, match=r"trace\.json\.gz is damaged"):
        trace_file.read_events(tmp_path)


def test_numbers_that_json_does_not_know_become_null() -> None:
    event = json.loads(trace_file.encode_event({"name": "loss", "args": {"value": math.nan, "step": 3}}))
    assert event == {"name": "loss", "args": {"value": None, "step": 3}}
