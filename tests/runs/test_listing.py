"""The runs below a folder, with and without an index."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from runs.made_up_runs import make_run
from viaduct.errors import BadRun, BadValue
from viaduct.runs import listing as module
from viaduct.runs.index import choose_index_path, open_index
from viaduct.runs.listing import list_runs, open_run, require_runs
from viaduct.runs.table import render_damage


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


def test_a_run_that_grew_has_its_new_figures(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", done=100, finished=False)
    assert list_runs([tmp_path]).runs[0].steps == 100
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "evaluation", "step": 110, "top1": 0.97, "loss": 0.1}\n')
    found = list_runs([tmp_path]).runs[0]
    assert (found.steps, found.best_top1) == (110, 0.97)


@pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"viaduct runs 1 0.1.0 00\n{}", b"[" * 5000])
def test_a_damaged_index_is_read_anew_without_a_word(tmp_path: Path, content: bytes) -> None:
    make_run(tmp_path / "a")
    before = list_runs([tmp_path])
    place = choose_index_path([tmp_path])
    place.write_bytes(content)
    assert list_runs([tmp_path]).runs == before.runs
    assert open_index([tmp_path]).entries.keys() == {str(tmp_path / "a")}


def test_an_index_whose_bytes_were_changed_is_not_believed(tmp_path: Path) -> None:
    make_run(tmp_path / "a", top1=0.9)
    before = list_runs([tmp_path])
    place = choose_index_path([tmp_path])
    place.write_bytes(place.read_bytes().replace(b'"made_up"', b'"forged_"'))
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


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "Expecting value"), (b"[]", "it holds a list"), (b'{"dependencies": {}}', "name is missing")],
)
def test_a_damaged_or_foreign_recipe_is_named_and_not_listed(tmp_path: Path, content: bytes, reason: str) -> None:
    make_run(tmp_path / "good")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "recipe.json").write_bytes(content)
    found = list_runs([tmp_path])
    assert [run.name for run in found.runs] == ["good"]
    assert [os.path.basename(problem.path) for problem in found.problems] == ["bad"]
    assert reason in found.problems[0].reason


def test_damaged_metrics_and_summary_cost_a_run_nothing_else(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a")
    (run / "metrics.jsonl").write_bytes(b"\0" * 50 + b"\n")
    (run / "summary.json").write_bytes(b"")
    found = list_runs([tmp_path]).runs[0]
    assert (found.steps, found.top1, found.damaged_lines, found.is_complete) == (0, None, 1, False)


def test_the_newest_run_comes_first(tmp_path: Path) -> None:
    for age, name in enumerate("abc"):
        os.utime(make_run(tmp_path / name) / "metrics.jsonl", (1000 - age, 1000 - age))
    os.utime(tmp_path / "b" / "metrics.jsonl", (5000, 5000))
    assert [run.name for run in list_runs([tmp_path]).runs] == ["b", "a", "c"]


def test_no_runs_is_an_error_that_names_the_place(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="there are no runs in"):
        require_runs(list_runs([tmp_path]), [tmp_path])


def test_a_run_that_is_named_and_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadValue, match="is a file, not a run"):
        open_run(tmp_path / "file")
    with pytest.raises(BadRun, match=r"it has no recipe\.json"):
        open_run(tmp_path)


def test_an_odd_provenance_is_passed_over(tmp_path: Path) -> None:
    odd: list[Any] = [{"sessions": 3}, {"sessions": [1, None]}, {"id": 5, "sessions": [{"machine": [], "data": 1}]}]
    for place, provenance in enumerate(odd):
        make_run(tmp_path / str(place), provenance=provenance)
    assert len(list_runs([tmp_path]).runs) == 3


def test_recipe_fields_are_known_by_their_paths(tmp_path: Path) -> None:
    run = open_run(make_run(tmp_path / "a", lr=0.3))
    assert run.fields["optimizer.lr"] == 0.3
    assert run.fields["optimizer"] == "Sgd"
    assert json.loads((tmp_path / "a" / "recipe.json").read_text())["recipe"]["optimizer"]["is"] == "Sgd"


def damage_metrics(file: Path, how: str) -> None:
    content = file.read_bytes()
    file.unlink()
    if how == "directory":
        file.mkdir()
    elif how == "pipe":
        os.mkfifo(file)
    elif how != "missing":
        lines = content.splitlines(keepends=True)
        contents = {
            "empty": b"",
            "cut": b"".join(lines[:20]),
            "junk": content + b"\xff\x00\x01",
            "line": content + b"x\n",
        }
        file.write_bytes(contents[how])


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("directory", "is no plain file"),
        ("pipe", "is no plain file"),
        ("missing", "metrics.jsonl is missing"),
        ("empty", "metrics.jsonl is empty"),
        ("cut", "of 600"),
        ("junk", "the last line of metrics.jsonl is cut off"),
        ("line", "1 damaged line in metrics.jsonl"),
    ],
)
def test_damaged_metrics_of_a_finished_run_are_named_below_the_table(tmp_path: Path, how: str, reason: str) -> None:
    make_run(tmp_path / "whole")
    damage_metrics(make_run(tmp_path / "a") / "metrics.jsonl", how)
    for _ in range(2):  # from the files, then from the index
        text = render_damage(list_runs([tmp_path]).runs, every=False)
        assert text.startswith("1 run has damaged or missing files:")
        assert reason in text


def test_a_half_written_line_of_a_run_that_goes_on_is_no_damage(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", done=100, finished=False)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "lo')
    assert render_damage(list_runs([tmp_path]).runs, every=False) == ""


def test_a_finished_run_without_weights_is_named(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a")
    assert render_damage(list_runs([tmp_path]).runs, every=False) == ""
    (run / "model.safetensors").unlink()
    assert "neither model.safetensors nor checkpoints" in render_damage(list_runs([tmp_path]).runs, every=False)
