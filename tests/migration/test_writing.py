"""Copies and changes in place: whole or not at all, and never over somebody's work."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from command import viaduct
from migration.small_project import PIPELINE, make_project, migrated_project
from migration.test_walk import git
from viaduct.errors import BadValue
from viaduct.migration import writing
from viaduct.migration.starting import start_scripts
from viaduct.migration.writing import check_clean, check_out, write_in_place, write_out


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and ".git/" not in path.as_posix())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "project")


def test_a_copy_has_everything_and_the_project_stays_as_it_was(project: Path) -> None:
    before = contents(project)
    os.symlink("data/pipeline.py", project / "link.py")
    (project / "empty").mkdir()
    (project / "train.py").chmod(0o755)
    out = project.parent / "out"
    write_out(migrated_project(project), out, {"scripts/run_1p.sh": "x\n"})
    after = contents(out)
    assert contents(project) == before | {"link.py": before["data/pipeline.py"]}
    assert set(after) == {*before, "link.py", "scripts/run_1p.sh"}
    assert after["old.py"] == before["old.py"]
    assert after["README.md"] == before["README.md"]
    assert b"NPURunConfig" in after["train.py"]
    assert os.readlink(out / "link.py") == "data/pipeline.py"
    assert (out / "empty").is_dir()
    assert os.access(out / "train.py", os.X_OK)
    assert os.access(out / "scripts/run_1p.sh", os.X_OK)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda p: p, "the project itself"),
        (lambda p: p / "out", "lies within"),
        (lambda p: p / "data" / ".." / "out", "lies within"),
        (lambda p: p / "README.md", "lies within"),
    ],
)
def test_a_place_that_cannot_be_is_refused_before_the_work(project: Path, make: object, word: str) -> None:
    with pytest.raises(BadValue, match=word):
        check_out(project, make(project))  # type: ignore[operator]


def test_a_folder_with_something_in_it_is_refused_and_an_empty_one_is_filled(project: Path) -> None:
    out = project.parent / "out"
    out.mkdir()
    check_out(project, out)
    write_out(migrated_project(project), out, {})
    assert (out / "train.py").exists()
    with pytest.raises(BadValue, match="not empty"):
        check_out(project, out)
    with pytest.raises(BadValue, match="not a folder"):
        check_out(project, out / "train.py")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_place_is_refused(project: Path) -> None:
    locked = project.parent / "locked"
    locked.mkdir(mode=0o555)
    with pytest.raises(BadValue, match="cannot be written to"):
        check_out(project, locked / "out")


def test_a_failure_midway_leaves_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = migrated_project(project)
    out = project.parent / "out"

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "train.py")

    monkeypatch.setattr(writing, "replace_bytes", full)
    with pytest.raises(BadValue, match="No space left"):
        write_out(outcome, out, {})
    assert os.listdir(project.parent) == ["project"]


def test_in_place_changes_only_what_changed_and_keeps_modes(project: Path) -> None:
    (project / "train.py").chmod(0o750)
    before = contents(project)
    write_in_place(migrated_project(project))
    after = contents(project)
    assert set(after) == set(before)
    assert {name for name in after if after[name] != before[name]} == {"train.py", "data/pipeline.py"}
    assert (project / "train.py").stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_in_place_is_all_or_nothing(project: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    outcome = migrated_project(project)
    before = contents(project)
    replace = os.replace

    def failing(source: Path, target: Path) -> None:
        if target.name == "train.py" and source.name.endswith("draft"):
            raise error
        replace(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises((BadValue, KeyboardInterrupt)):
        write_in_place(outcome)
    assert contents(project) == before


def test_a_file_that_was_changed_meanwhile_is_not_overwritten(project: Path) -> None:
    outcome = migrated_project(project)
    (project / "train.py").write_text("mine\n")
    before = contents(project)
    with pytest.raises(BadValue, match="was changed while"):
        write_in_place(outcome)
    assert contents(project) == before


def test_a_dirty_git_tree_is_refused(project: Path) -> None:
    outcome = migrated_project(project)
    assert not check_clean(outcome), "no repository"
    git(project, "init", "-q")
    with pytest.raises(BadValue, match="not committed"):
        check_clean(outcome)
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "all")
    assert check_clean(outcome)
    (project / "README.md").write_text("changed\n")
    with pytest.raises(BadValue, match=r"README\.md"):
        check_clean(outcome)


def test_start_scripts_go_with_a_migrated_project_only(project: Path) -> None:
    scripts = start_scripts(migrated_project(project))
    assert {"scripts/env.sh", "scripts/run_1p.sh", "scripts/run_8p.sh", "scripts/rank_table_8p.json"} == set(scripts)
    assert '"$here"/../train.py' in scripts["scripts/run_1p.sh"]
    (project / "train.py").unlink()
    (project / "data/pipeline.py").write_text(PIPELINE.replace("32", "32, drop_remainder=True"))
    assert start_scripts(migrated_project(project, only=("dataset_drop_remainder",))) == {}


def test_start_scripts_do_not_replace_the_projects_own(project: Path) -> None:
    (project / "scripts").mkdir()
    (project / "scripts/run_8p.sh").write_text("mine\n")
    names = set(start_scripts(migrated_project(project)))
    assert "npu_scripts/run_8p.sh" in names
    assert not any(name.startswith("scripts/") for name in names)


def test_the_scripts_of_a_copy_are_understood_by_bash(project: Path) -> None:
    out = project.parent / "out"
    outcome = migrated_project(project)
    write_out(outcome, out, start_scripts(outcome))
    for script in (out / "scripts").glob("*.sh"):
        subprocess.run(["bash", "-n", str(script)], check=True)


def test_a_link_is_not_replaced_by_what_it_points_to(tmp_path: Path) -> None:
    script, link = tmp_path / "train.py", tmp_path / "link.py"
    script.write_text("import torch\ntorch.cuda.synchronize()\n")
    link.symlink_to(script)
    result = viaduct("migrate", str(link), "--in-place")
    assert result.returncode == 2
    assert "symbolic link" in result.stderr
    assert link.is_symlink()
    assert "torch.cuda" in script.read_text()


@pytest.mark.parametrize(("to", "flag"), [("mlu", "--int32-targets"), ("any", "--start-up"), ("mlu", "--start-up")])
def test_flags_of_the_npu_are_refused_for_others(tmp_path: Path, to: str, flag: str) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    result = viaduct("migrate", str(tmp_path), "--to", to, flag)
    assert result.returncode == 2
    assert f"--to {to} with {flag}" in result.stderr
