"""Runs as CSV: a row each, whole, and harmless in a spreadsheet."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from runs.made_up_runs import make_run
from viaduct.runs.csv_export import render_csv, write_csv
from viaduct.runs.listing import open_run


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
