"""Facts read from the files of a run, and what is wrong with these files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from runs.sample_runs import make_run
from viaduct.runs.listing import list_runs, open_run
from viaduct.runs.table import render_damage


def test_damaged_metrics_and_summary_cost_a_run_nothing_else(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a")
    (run / "metrics.jsonl").write_bytes(b"\0" * 50 + b"\n")
    (run / "summary.json").write_bytes(b"")
    found = list_runs([tmp_path]).runs[0]
    assert (found.steps, found.top1, found.damaged_lines, found.is_complete) == (0, None, 1, False)


def test_an_odd_provenance_is_passed_over(tmp_path: Path) -> None:
    odd: list[Any] = [{"sessions": 3}, {"sessions": [1, None]}, {"id": 5, "sessions": [{"machine": [], "data": 1}]}]
    for index, provenance in enumerate(odd):
        make_run(tmp_path / str(index), provenance=provenance)
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
        ("directory", "is not a plain file"),
        ("pipe", "is not a plain file"),
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
        text = render_damage(list_runs([tmp_path]).runs, show_all=False)
        assert text.startswith("1 run has damaged or missing files:")
        assert reason in text


def test_a_half_written_line_of_a_run_that_goes_on_is_no_damage(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", done=100, finished=False)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "lo')
    assert render_damage(list_runs([tmp_path]).runs, show_all=False) == ""
