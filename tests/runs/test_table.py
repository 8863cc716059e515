"""The table of runs in a terminal, and the same as JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from runs.sample_runs import make_run
from viaduct.runs.finding import Problem
from viaduct.runs.listing import list_runs, open_run
from viaduct.runs.table import format_age, format_speed, render_csv, render_problems, render_table, to_json, write_csv


@pytest.mark.parametrize(
    ("seconds", "age"),
    [(-5, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "119 min"), (7200, "2 h"), (172_800, "2 d")],
)
def test_an_age_has_the_largest_unit_of_which_two_have_passed(seconds: float, age: str) -> None:
    assert format_age(1_000_000.0 - seconds, 1_000_000.0) == age


def test_a_slow_rate_keeps_its_digits() -> None:
    assert [format_speed(rate) for rate in (0.123, 9.5, 12_345.6)] == ["0.12", "9.5", "12,346"]


def test_a_table_counts_its_runs_by_state_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_run(tmp_path / name)
    make_run(tmp_path / "c", done=0, finished=False)
    runs = list_runs([tmp_path]).runs
    lines = render_table(runs, max_rows=1).splitlines()
    assert len(lines) == 3
    assert lines[0].split()[:4] == ["name", "recipe", "data", "code"]
    assert lines[-1].startswith("3 runs: ")
    assert "2 finished" in lines[-1]
    assert "the first 1 are shown, --all shows every one" in lines[-1]
    assert render_table([]).splitlines()[-1] == "no run passes the filters"


def test_only_the_first_folders_without_a_run_are_named_unless_all_are_requested() -> None:
    problems = [Problem(f"p{number}", "why") for number in range(12)]
    assert render_problems(problems, show_all=False).splitlines()[-1] == "  … and 2 more; --all names them"
    assert render_problems(problems, show_all=True).splitlines()[-1] == "  p11: why"
    assert render_problems(problems[:1], show_all=False) == "1 folder is not listed as runs:\n  p0: why"


def test_json_has_results_in_percent_and_the_fields_of_the_recipe(tmp_path: Path) -> None:
    make_run(tmp_path / "a", top1=0.9)
    listing = list_runs([tmp_path])
    (run,) = json.loads(to_json(listing, listing.runs))["runs"]
    assert (run["path"], run["state"], run["steps"]) == (str(tmp_path / "a"), "finished", 600)
    assert run["top1"] == pytest.approx(89.78, abs=0.01)
    assert run["fields"]["optimizer.lr"] == 0.1


def test_a_name_is_never_a_formula(tmp_path: Path) -> None:
    run = open_run(make_run(tmp_path / "a", name='=cmd|"x"', command="@SUM(1)"))
    rows = list(csv.DictReader(io.StringIO(render_csv([run]))))
    assert rows[0]["recipe"] == '\'=cmd|"x"'


def test_every_run_has_a_row_with_results_and_the_fields_of_its_recipe(tmp_path: Path) -> None:
    runs = [open_run(make_run(tmp_path / name, lr=lr)) for name, lr in (("a", 0.1), ("b,\n", 0.2))]
    write_csv(runs, tmp_path / "out.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text())))
    assert [row["recipe.optimizer.lr"] for row in rows] == ["0.1", "0.2"]
    assert [row["path"] for row in rows] == [str(tmp_path / "a"), str(tmp_path / "b,\n")]
    assert rows[0]["state"] == "finished"
    assert 85 < float(rows[0]["top1"]) < 91
