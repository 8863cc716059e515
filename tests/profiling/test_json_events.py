"""Events of a trace, read as far as the file goes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from viaduct.profiling import json_events
from viaduct.profiling.json_events import EventFile

EVENTS = [{"ph": "X", "name": f"a{n}", "ts": n, "dur": 0.5, "args": {"text": '[{"\\ é'}} for n in range(50)]


def read(path: Path, content: bytes) -> tuple[list[str], list[str], EventFile]:
    path.write_bytes(content)
    notes: list[str] = []
    file = EventFile(path, notes)
    return [event["name"] for event in file], notes, file


@pytest.mark.parametrize("chunk", [7, 1 << 20])
def test_a_file_cut_off_anywhere_gives_its_whole_events(
    chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_events, "CHUNK", chunk)
    content = json.dumps({"schemaVersion": 1, "traceEvents": EVENTS[:3]}).encode()
    for length in range(0, len(content) - 2, 5):
        names, notes, _ = read(tmp_path / "a.json", content[:length])
        assert names == [f"a{n}" for n in range(len(names))]
        assert len(notes) == 1
        assert "holds no events" in notes[0] or "truncated or damaged" in notes[0]
    assert read(tmp_path / "a.json", content)[:2] == (["a0", "a1", "a2"], [])


def test_events_after_a_damaged_one_are_not_guessed(tmp_path: Path) -> None:
    names, notes, _ = read(tmp_path / "a.json", b'[{"name": "a"}, {"name": b}, {"name": "c"}]')
    assert names == ["a"]
    assert "truncated or damaged after 1 events" in notes[0]


def test_what_is_no_object_is_skipped(tmp_path: Path) -> None:
    assert read(tmp_path / "a.json", b'[1, null, "x", [2], {"name": "a"}, 12]')[:2] == (["a"], [])


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"a": 1}', b"hello", b"\xff\xfe", b"[" * 100_000, b'[{"a":' * 50_000]
)
def test_a_file_without_events_has_none(content: bytes, tmp_path: Path) -> None:
    names, notes, _ = read(tmp_path / "a.json", content)
    assert names == []
    assert len(notes) == 1


def test_an_archive_that_breaks_off_gives_what_it_holds(tmp_path: Path) -> None:
    packed = gzip.compress(json.dumps(EVENTS).encode(), compresslevel=0)
    names, notes, _ = read(tmp_path / "a.json.gz", packed[: len(packed) // 2])
    assert 10 < len(names) < 50
    assert len(notes) == 1


def test_events_beyond_the_limit_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_events, "MAX_EVENTS", 5)
    names, notes, _ = read(tmp_path / "a.json", json.dumps(EVENTS).encode())
    assert len(names) == 5
    assert notes == ["a.json: only the first 5 events were read."]


def test_a_list_an_object_and_an_archive_are_the_same(tmp_path: Path) -> None:
    text = json.dumps({"traceName": "x", "traceEvents": EVENTS, "after": [1]}, indent=2).encode()
    contents = [json.dumps(EVENTS).encode(), text, gzip.compress(text), b"\xef\xbb\xbf" + text]
    found = [read(tmp_path / "a", content)[:2] for content in contents]
    assert all(each == found[0] for each in found)
    assert len(found[0][0]) == 50


def test_the_header_before_the_events_is_kept(tmp_path: Path) -> None:
    content = json.dumps({"distributedInfo": {"rank": 3}, "traceEvents": EVENTS}).encode()
    assert read(tmp_path / "a.json", content)[2].header == {"distributedInfo": {"rank": 3}}


def test_times_that_are_texts_become_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"name": "a", "ts": "1700000000000000.125", "dur": "x"}]')
    (event,) = EventFile(tmp_path / "a.json", [])
    assert event == {"name": "a", "ts": 1_700_000_000_000_000.125, "args": {}}


@pytest.mark.parametrize("damage", ['"name": 3', '"pid": []', '"args": []', '"dur": -1', '"cat": {}', '"id": {"a": 1}'])
def test_events_of_another_form_are_left_out_and_counted(damage: str, tmp_path: Path) -> None:
    names, notes, _ = read(tmp_path / "a.json", f'[{{"name": "a", "ts": 1, {damage}}}, {{"name": "b"}}]'.encode())
    assert names == ["b"]
    assert notes == ["a.json: 1 malformed events were left out."]
