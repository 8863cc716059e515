"""Paths that both sides share by mistake."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from viaduct.carrying.shared_paths import find_change_times, find_changed_since


def test_a_full_path_that_the_first_run_writes_to_is_noticed(tmp_path: Path) -> None:
    untouched, written = tmp_path / "data", tmp_path / "run"
    untouched.mkdir()
    before = find_change_times([f"--data={untouched}", str(written), "relative", "--steps=3"])
    assert set(before) == {str(untouched), str(written)}
    assert find_changed_since(before) == []
    (written / "deep").mkdir(parents=True)
    assert find_changed_since(before) == [str(written)]


def test_a_full_path_with_an_equals_sign_in_it_is_a_path(tmp_path: Path) -> None:
    assert set(find_change_times([f"{tmp_path}/lr=0.1", "--rate=0.1"])) == {f"{tmp_path}/lr=0.1"}


def test_a_file_that_changes_deep_below_a_path_is_noticed_and_of_many_only_some_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / "a" / "b" / "model.pt"
    deep.parent.mkdir(parents=True)
    deep.write_text("")
    for path in (deep, deep.parent, deep.parent.parent, tmp_path):
        os.utime(path, (1000, 1000))
    before = find_change_times([f"--out={tmp_path}"])
    assert before == {str(tmp_path): 1000.0}
    os.utime(deep, (2000, 2000))
    assert find_changed_since(before) == [str(tmp_path)]
    monkeypatch.setattr("viaduct.carrying.shared_paths.MAX_ENTRIES", 3)
    assert find_changed_since(before) == []


def test_a_link_that_leads_nowhere_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link").symlink_to(tmp_path / "nowhere")
    assert find_change_times([str(tmp_path / "data")])[str(tmp_path / "data")] > 0
