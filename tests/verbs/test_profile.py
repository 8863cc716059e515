"""`viaduct profile run, read, compare`: what is refused, what is printed, what is written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from forked_viaduct import viaduct
from viaduct.errors import BadRun, UnknownName
from viaduct.profiling.outputs import check_page
from viaduct.verbs.profile import defines_recipe, is_recipe

SCRIPT = """\
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

print("arguments", sys.argv[1:])
data = TensorDataset(torch.randn(64, 16), torch.randint(0, 4, (64,)))
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(int(sys.argv[1]) if sys.argv[1:] else 99):
    for x, y in DataLoader(data, batch_size=8):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
"""
FILES = {"profile.json", "step_trace.csv", "operators.csv", "kernels.csv", "system.csv", "trace.json", "report.html"}


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def test_a_folder_that_is_not_empty_is_refused_before_the_script_runs(script: Path, tmp_path: Path) -> None:
    (tmp_path / "prof").mkdir()
    (tmp_path / "prof" / "mine.txt").write_text("mine")
    ended = viaduct("profile", "run", script, cwd=tmp_path)
    assert ended.returncode == 2
    assert "--out prof is not empty" in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize("option", [("--set", "steps=3"), ("--apply",)], ids=lambda option: option[0])
def test_options_of_recipes_are_refused_for_a_script(option: tuple[str, ...], script: Path, tmp_path: Path) -> None:
    ended = viaduct("profile", "run", script, *option, cwd=tmp_path)
    assert ended.returncode == 2
    assert f"{option[0]} goes with a recipe" in ended.stderr


def test_arguments_are_refused_for_a_recipe(tmp_path: Path) -> None:
    ended = viaduct("profile", "run", "resnet50_imagenet", "--", "--lr", "1", cwd=tmp_path)
    assert ended.returncode == 2
    assert "a recipe takes no arguments: '--lr'" in ended.stderr


def test_a_name_that_is_neither_recipe_nor_script_has_a_closest() -> None:
    with pytest.raises(UnknownName, match=r"Closest is 'resnet50_imagenet'"):
        is_recipe("resnet5O_imagenet")


def test_a_file_is_a_recipe_if_it_defines_one(script: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "mine.py"
    recipe.write_text("from viaduct.recipes import Recipe\nrecipe = Recipe(model='resnet50')\n")
    other = tmp_path / "kitchen.py"
    other.write_text("import torch\nrecipe = {'flour': 1}\n")
    assert defines_recipe(recipe)
    assert not defines_recipe(other)
    assert not defines_recipe(script)


def test_a_script_is_profiled_and_only_its_own_files_are_replaced(script: Path, tmp_path: Path) -> None:
    out = tmp_path / "prof"
    (out / "rank_3").mkdir(parents=True)
    (out / "mine.txt").write_text("mine")
    for stale in ("rank_3/profile.json", "trace.json.gz"):
        (out / stale).write_text("of an earlier profile")
    words = ["profile", "run", script, "--steps", "4", "--skip", "1", "--recorded", "1", "--force", "--json"]
    ended = viaduct(*words, "--", "7", "--flag", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "arguments ['7', '--flag']" in ended.stderr  # with --json, stdout is the profile alone
    profile = json.loads(ended.stdout)
    assert profile == json.loads((out / "profile.json").read_text())
    assert profile["facts"]["timed_steps"] == 4
    assert "--flag" in profile["facts"]["command"]
    assert {path.name for path in out.iterdir()} == {*FILES, "mine.txt"}
    assert all(str(Path("prof") / name) in ended.stderr for name in FILES)


def test_two_ranks_have_folders_of_their_own_and_a_merged_one(tmp_path: Path) -> None:
    source = SCRIPT.replace("optimizer =", "torch.distributed.init_process_group('gloo')\noptimizer =")
    (tmp_path / "train.py").write_text(source)
    words = ["profile", "run", "train.py", "--steps", "3", "--skip", "1", "--recorded", "0", "--ranks", "2"]
    ended = viaduct(*words, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    merged = json.loads((tmp_path / "prof" / "profile.json").read_text())
    assert merged["facts"]["ranks"] == 2
    assert sorted({step["rank"] for step in merged["steps"]}) == [0, 1]
    for rank in (0, 1):
        own = json.loads((tmp_path / "prof" / f"rank_{rank}" / "profile.json").read_text())
        assert {step["rank"] for step in own["steps"]} == {rank}


def test_a_script_that_ends_early_is_written_and_says_why(script: Path, tmp_path: Path) -> None:
    script.write_text(SCRIPT + "sys.exit(3)\n")
    ended = viaduct("profile", "run", script, "--recorded", "0", "--", "1", cwd=tmp_path)
    assert ended.returncode == 3
    reason = "the script ended with exit code 3 after 8 of 25 steps"
    assert reason in ended.stderr
    facts = json.loads((tmp_path / "prof" / "profile.json").read_text())["facts"]
    assert (facts["ended"], facts["timed_steps"]) == (reason, 3)


def test_a_module_without_a_step_is_run_as_python_runs_it_and_written_too(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "empty.py").write_text("import sys\nassert __package__ == 'package'\nprint(sys.argv[1])\n")
    ended = viaduct("profile", "run", "-m", "package.empty", "--", "hello", cwd=tmp_path)
    assert "hello" in ended.stdout
    assert ended.returncode == 2
    assert "no training step was found" in ended.stderr
    facts = json.loads((tmp_path / "prof" / "profile.json").read_text())["facts"]
    assert "no training step was found" in facts["ended"]


def test_a_profile_is_read_and_compared(script: Path, tmp_path: Path) -> None:
    words = ["profile", "run", script, "--steps", "4", "--skip", "1", "--recorded", "0"]
    assert viaduct(*words, cwd=tmp_path).returncode == 0
    read = viaduct("profile", "read", "prof", "--out", "again", cwd=tmp_path)
    assert read.returncode == 0, read.stderr
    assert "train.py" in read.stdout
    assert (tmp_path / "again" / "report.html").exists()
    compared = viaduct("profile", "compare", "prof", "prof", "--out", "difference.html", cwd=tmp_path)
    assert compared.returncode == 0, compared.stderr
    assert (tmp_path / "difference.html").exists()
    assert os.listdir(tmp_path / "prof")


def test_a_page_replaces_neither_a_device_nor_a_link_nor_a_file_of_the_users(tmp_path: Path) -> None:
    (tmp_path / "mine.html").write_text("mine")
    (tmp_path / "link").symlink_to("mine.html")
    os.mkfifo(tmp_path / "pipe")
    for name, force in (("mine.html", False), ("link", True), ("pipe", True), (".", True)):
        with pytest.raises(BadRun, match="--out"):
            check_page(tmp_path / name, force)
    assert (tmp_path / "mine.html").read_text() == "mine"
    check_page(tmp_path / "mine.html", force=True)
    check_page(tmp_path / "new.html", force=False)
