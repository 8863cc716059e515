"""`viaduct train --lr find`: what it refuses, what it leaves behind."""

from __future__ import annotations

from pathlib import Path

from command import viaduct
from viaduct.recipes import load
from viaduct.verbs.train import rate_flag

RECIPE = """
from training.tiny import RECIPE

recipe = RECIPE
"""


def write_recipe(folder: Path) -> Path:
    file = folder / "mine.py"
    file.write_text(RECIPE)
    return file


def test_ranks_and_a_second_rate_are_refused(tmp_path: Path) -> None:
    file = write_recipe(tmp_path)
    for words in (["--ranks", "2"], ["--lr-per-rank", "0.1"]):
        answer = viaduct("train", file, "--lr", "find", *words, cwd=tmp_path, PYTHONPATH=str(Path(__file__).parents[1]))
        assert answer.returncode == 2, answer.stderr
        assert "--lr find" in answer.stderr
    assert not (tmp_path / "runs").exists()


def test_only_a_page_is_left_and_the_run_can_begin_afterwards(tmp_path: Path) -> None:
    file, tests = write_recipe(tmp_path), str(Path(__file__).parents[1])
    words = ["train", file, "--run", tmp_path / "run", "--device", "cpu"]
    found = viaduct(*words, "--lr", "find", "--steps", "60", PYTHONPATH=tests)
    assert found.returncode == 0, found.stderr
    assert "learning rate" in found.stdout or "No rate is suggested" in found.stdout
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["rate_finder.html"]
    trained = viaduct(*words, "--steps", "2", PYTHONPATH=tests)
    assert trained.returncode == 0, trained.stderr


def test_the_flag_sets_the_peak_also_where_the_schedule_has_it() -> None:
    assert rate_flag(load("shapes_taster").recipe, 0.14) == "--lr 0.14"
    assert rate_flag(load("resnet50_lars_imagenet").recipe, 5.0) == "--set schedule.peak=5 --lr 1"
