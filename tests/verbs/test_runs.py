"""viaduct runs: the table, its flags and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from forked_viaduct import viaduct
from runs.sample_runs import make_run


def runs(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return viaduct("runs", *words, cwd=cwd, XDG_CACHE_HOME=str(cwd / ".cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_run(tmp_path / "runs" / "low", lr=0.01, top1=0.5)
    make_run(tmp_path / "runs" / "high", lr=0.1, top1=0.9)
    return tmp_path


def test_neither_torch_nor_numpy_is_imported_for_a_second_look(folder: Path) -> None:
    runs(cwd=folder)
    code = "import sys; sys.argv = ['viaduct', 'runs']; import viaduct.cli\n"
    code += "try:\n    viaduct.cli.main()\nfinally:\n    print({'torch', 'numpy', 'jinja2', 'rich'} & set(sys.modules))"
    environment = os.environ | {"XDG_CACHE_HOME": str(folder / ".cache")}
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, env=environment)
    assert made.stdout.splitlines()[-1] == "set()"


def test_the_table_lists_the_runs_of_the_usual_folder(folder: Path) -> None:
    made = runs(cwd=folder)
    assert made.returncode == 0, made.stderr
    lines = made.stdout.splitlines()
    assert lines[0].split()[:4] == ["name", "recipe", "data", "code"]
    assert {line.split()[0] for line in lines[1:3]} == {"low", "high"}
    assert lines[3] == "2 runs: 2 finished"
    assert runs("list", "runs", cwd=folder).stdout.splitlines()[3] == lines[3]


def test_conditions_may_follow_each_other(folder: Path) -> None:
    made = runs("runs", "--filter", "recipe=made*", "top1>60", "--json", cwd=folder)
    assert [run["name"] for run in json.loads(made.stdout)["runs"]] == ["high"]
    assert "no run passes" in runs("--filter", "top1>99", cwd=folder).stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sort", "tpo1"], "Closest is 'top1'"),
        (["missing"], "there is no folder 'missing'"),
        (["runs/low/recipe.json"], "is a file, not a folder of runs"),
        (["best", "--by", "speed"], "no measure called 'speed'"),
        (["show", "runs"], "is not a run"),
        (["export", "--to", "xml", "--out", "x"], "--to is 'xml'"),
        (["export", "--to", "csv"], "--out is missing"),
        (["watch", "missing"], "there is no folder 'missing'"),
    ],
)
def test_a_mistake_is_a_message_and_exit_code_2(folder: Path, words: list[str], message: str) -> None:
    made = runs(*words, cwd=folder)
    assert made.returncode == 2
    assert message in made.stderr
    assert "Traceback" not in made.stderr


def test_best_show_and_lineage_answer(folder: Path) -> None:
    assert "high" in runs("best", cwd=folder).stdout.splitlines()[1]
    assert "best top-1" in runs("show", "runs/low", cwd=folder).stdout
    assert runs("lineage", "runs/low", cwd=folder).stdout.startswith("runs/low: made_up, finished")


def test_diff_ends_with_0_for_equal_runs_and_1_for_others(folder: Path) -> None:
    make_run(folder / "runs" / "same", lr=0.1, top1=0.9)
    equal = runs("diff", "runs/high", "runs/same", cwd=folder)
    assert equal.returncode == 0
    assert "exactly equal, as recorded" in equal.stdout
    other = runs("diff", "runs/high", "runs/low", "--json", cwd=folder)
    assert other.returncode == 1
    assert list(json.loads(other.stdout)["aspects"][0]["changes"]) == ["optimizer.lr"]


def test_page_and_csv_replace_only_their_own_kind(folder: Path) -> None:
    assert runs("page", "--out", "page.html", cwd=folder).returncode == 0
    assert runs("page", "--out", "page.html", cwd=folder).returncode == 0
    (folder / "mine.html").write_text("mine")
    assert runs("page", "--out", "mine.html", cwd=folder).returncode == 2
    assert (folder / "mine.html").read_text() == "mine"
    assert runs("export", "--out", "runs.csv", cwd=folder).returncode == 0
    assert (folder / "runs.csv").read_text().count("\n") == 3


def test_control_characters_in_names_are_written_out(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "a\x1b[31mb\n", name="x\x07")
    made = runs(cwd=tmp_path)
    assert made.returncode == 0
    assert "\x1b" not in made.stdout
    assert "\\x1b[31mb\\n" in made.stdout
