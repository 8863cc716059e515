"""The index of runs: it saves reading, and is never believed where files have changed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from runs.sample_runs import make_run
from viaduct.runs import listing as module
from viaduct.runs.index import choose_index_path, open_index
from viaduct.runs.listing import list_runs


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows by each run whose files are read."""
    read: list[str] = []
    original = module.read_run

    def read_and_note(folder: str, *rest: Any) -> Any:
        read.append(Path(folder).name)
        return original(folder, *rest)

    monkeypatch.setattr(module, "read_run", read_and_note)
    return read


def test_what_has_not_changed_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        make_run(tmp_path / name)
    first = list_runs([tmp_path])
    read = count_reads(monkeypatch)
    assert list(list_runs([tmp_path]).runs) == first.runs
    assert read == []


@pytest.mark.parametrize("file", ["recipe.json", "metrics.jsonl", "summary.json"])
def test_a_file_that_changed_is_never_taken_from_the_index(
    tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        make_run(tmp_path / name)
    list_runs([tmp_path])
    read = count_reads(monkeypatch)
    with (tmp_path / "b" / file).open("a") as opened:
        opened.write("\n")
    list_runs([tmp_path])
    assert read == ["b"]


@pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"viaduct runs 1 0.1.0 00\n{}", b"[" * 5000])
def test_a_damaged_index_is_read_anew_without_a_message(tmp_path: Path, content: bytes) -> None:
    make_run(tmp_path / "a")
    before = list_runs([tmp_path])
    path = choose_index_path([tmp_path])
    path.write_bytes(content)
    assert list_runs([tmp_path]).runs == before.runs
    assert open_index([tmp_path]).entries.keys() == {str(tmp_path / "a")}


def test_an_index_whose_bytes_were_changed_is_not_used(tmp_path: Path) -> None:
    make_run(tmp_path / "a", top1=0.9)
    before = list_runs([tmp_path])
    path = choose_index_path([tmp_path])
    path.write_bytes(path.read_bytes().replace(b'"made_up"', b'"forged_"'))
    assert list_runs([tmp_path]).runs == before.runs


def test_an_index_that_cannot_be_written_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path / "runs" / "a")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert [run.name for run in list_runs([tmp_path / "runs"]).runs] == ["a"]


def test_several_at_once_leave_a_whole_index(tmp_path: Path) -> None:
    for number in range(20):
        make_run(tmp_path / f"r{number}", steps=20)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: len(list_runs([tmp_path]).runs), range(24)))
    assert answers == [20] * 24
    assert len(open_index([tmp_path]).entries) == 20
    assert [path.name for path in choose_index_path([tmp_path]).parent.iterdir()] == [
        choose_index_path([tmp_path]).name
    ]


def test_runs_that_are_gone_leave_the_index(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a")
    make_run(tmp_path / "b")
    list_runs([tmp_path])
    (run / "recipe.json").unlink()
    for file in run.iterdir():
        file.unlink()
    assert [found.name for found in list_runs([tmp_path]).runs] == ["b"]
    assert open_index([tmp_path]).entries.keys() == {str(tmp_path / "b")}
