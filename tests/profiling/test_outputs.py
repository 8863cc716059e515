"""The profile folder: what is refused, what is replaced, and what is there if a part fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from viaduct.errors import BadRun
from viaduct.profiling import outputs, roofline
from viaduct.profiling.folder import PROFILE_FILE, read_profile, write_profile
from viaduct.profiling.outputs import (
    REPORT_FILE,
    complete_folder,
    find_advice,
    find_ceilings,
    prepare_folder,
    remove_profile,
    write_ranks,
)

from .complete_profile import make_profile

EVENT = {"ph": "X", "pid": 7, "tid": 1, "name": "aten::add", "ts": 1.0, "dur": 2.0}


def test_a_file_or_a_folder_with_content_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(BadRun, match="is a file, not a folder"):
        prepare_folder(tmp_path / "mine.txt", force=True)
    with pytest.raises(BadRun, match="is not empty"):
        prepare_folder(tmp_path, force=False)
    prepare_folder(tmp_path, force=True)
    prepare_folder(tmp_path / "new" / "folder", force=False)
    assert (tmp_path / "new" / "folder").is_dir()
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["mine.txt"]


def test_only_files_of_a_profile_are_removed(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "rank_0", tmp_path / "rank_1", tmp_path / "rank_notes"):
        write_profile(make_profile(), folder)
    (tmp_path / "mine.txt").touch()
    (tmp_path / "rank_1" / "mine.txt").touch()
    remove_profile(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.txt", "rank_1", "rank_notes"]
    assert [path.name for path in (tmp_path / "rank_1").iterdir()] == ["mine.txt"]
    assert (tmp_path / "rank_notes" / PROFILE_FILE).exists()


def test_one_rank_needs_no_folder_of_its_own(tmp_path: Path) -> None:
    profile = make_profile()
    assert write_ranks([(0, profile, [EVENT])], tmp_path) == (profile, [EVENT])
    assert list(tmp_path.iterdir()) == []


def test_several_ranks_are_written_and_merged(tmp_path: Path) -> None:
    merged, events = write_ranks([(rank, make_profile(rank), [EVENT]) for rank in (0, 1)], tmp_path)
    assert merged.ranks == [0, 1]
    assert len({event["pid"] for event in events if event["ph"] == "X"}) == 2
    assert read_profile(tmp_path / "rank_1").ranks == [1]


def test_the_profile_is_on_the_disk_even_if_advice_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(profile: object) -> list[object]:
        raise ValueError("no advice")

    monkeypatch.setattr(outputs, "find_advice", fail)
    with pytest.raises(ValueError, match="no advice"):
        complete_folder(make_profile(), tmp_path, [EVENT], lambda line: None)
    assert read_profile(tmp_path).ranks == [0]


def test_all_files_of_a_folder_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "find_advice", lambda profile: replace(profile, advice=[]))
    write_profile(make_profile(), tmp_path / "rank_0")
    profile, files = complete_folder(make_profile(), tmp_path, [EVENT], lambda line: None)
    assert {path for path in tmp_path.iterdir() if path.is_file()} | {tmp_path / "rank_0"} == set(files)
    assert tmp_path / REPORT_FILE in files
    assert list(profile.advice) == list(read_profile(tmp_path).advice) == []


def test_a_roofline_that_cannot_be_measured_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(device: str, dtypes: list[str]) -> None:
        raise RuntimeError("the device is busy")

    monkeypatch.setattr(roofline, "load_ceilings", fail)
    lines: list[str] = []
    assert find_ceilings(make_profile(), lines.append) is None
    assert lines == ["the roofline is left out: the device is busy"]
    assert find_ceilings(replace(make_profile(), kernels=[]), pytest.fail) is None


def test_a_profile_without_operators_gets_no_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("viaduct.profiling.microbenchmarks.DeviceMicrobenchmarks", pytest.fail)
    assert find_advice(replace(make_profile(), operators=[])).operators == []
