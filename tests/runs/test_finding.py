"""Folders that are runs, and the reasons given for others."""

from __future__ import annotations

from pathlib import Path

import pytest

from runs.sample_runs import make_run
from viaduct.errors import BadValue
from viaduct.runs.finding import MAX_DEPTH, search_folders


def test_a_folder_without_any_file_of_a_run_is_not_mentioned(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").write_text("")
    found = search_folders([tmp_path])
    assert (found.runs, found.problems) == ([], [])


def test_links_that_lead_in_a_circle_end_the_search(tmp_path: Path) -> None:
    run = make_run(tmp_path / "deep" / "run")
    (tmp_path / "deep" / "circle").symlink_to(tmp_path)
    (tmp_path / "itself").symlink_to("itself")
    (tmp_path / "twice").symlink_to(run)
    assert search_folders([tmp_path, tmp_path]).runs == [str(run)]


def test_a_run_below_a_link_is_found(tmp_path: Path) -> None:
    make_run(tmp_path / "elsewhere" / "run")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "disk").symlink_to(tmp_path / "elsewhere")
    assert search_folders([tmp_path / "runs"]).runs == [str(tmp_path / "runs" / "disk" / "run")]


def test_what_lies_inside_a_run_is_not_searched(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    make_run(run / "inner")
    assert search_folders([tmp_path]).runs == [str(run)]


@pytest.mark.parametrize(
    ("file", "reason"),
    [("metrics.jsonl", "not a whole run: it has metrics.jsonl, but no recipe.json"), (".lock", "never began")],
)
def test_part_of_a_run_is_named_with_the_reason(tmp_path: Path, file: str, reason: str) -> None:
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / file).write_text("")
    found = search_folders([tmp_path])
    assert [problem.path for problem in found.problems] == [str(tmp_path / "half")]
    assert reason in found.problems[0].reason


def test_folders_that_lie_too_deep_are_counted(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*"abcdefghijkl"[: MAX_DEPTH + 1])
    make_run(deep)
    found = search_folders([tmp_path])
    assert (found.runs, found.too_deep) == ([], 1)


def test_a_file_and_a_missing_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadValue, match="is a file, not a folder of runs"):
        search_folders([tmp_path / "file"])
    with pytest.raises(BadValue, match="there is no folder"):
        search_folders([tmp_path / "missing"])


@pytest.mark.parametrize("mark", ["carry.json", "drift.csv", "plan.json", "profile.json"])
def test_folders_of_other_verbs_are_no_damaged_runs(mark: str, tmp_path: Path) -> None:
    (tmp_path / "carried").mkdir()
    for name in (mark, "summary.json"):
        (tmp_path / "carried" / name).write_text("{}")
    found = search_folders([tmp_path])
    assert found.problems == []
    assert found.runs == []
