"""Copies and changes in place: complete or not at all, and never over other files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from forked_viaduct import viaduct
from migration.small_project import PIPELINE, make_project, migrated_project
from migration.test_walk import git
from unprivileged import make_public_folder, run_as_nobody
from viaduct.errors import BadValue
from viaduct.migration import writing
from viaduct.migration.inplace import write_in_place
from viaduct.migration.start_scripts import render_start_scripts
from viaduct.migration.writing import check_clean, check_out, write_out


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


def test_a_copy_can_link_to_data_and_never_to_a_script(project: Path) -> None:
    (project / "sets" / "deep").mkdir(parents=True)
    for number in range(writing.MANY_FILES + 1):
        (project / "sets" / "deep" / f"{number}.txt").write_text("x")
    (project / "data" / "few.txt").write_text("x")
    with (project / "data" / "model.ckpt").open("wb") as file:
        file.truncate(50 << 30)
    out = project.parent / "out"
    write_out(migrated_project(project), out, {}, link_data=True)
    links = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_symlink()}
    assert links == {"sets", "data/model.ckpt"}
    assert (out / "sets" / "deep" / "7.txt").read_text() == "x"
    assert b"NPURunConfig" in (out / "train.py").read_bytes()


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


@pytest.mark.parametrize("mode", [0o555, 0o444, 0o111, 0o000])
def test_a_place_that_may_not_be_written_or_entered_is_refused(mode: int) -> None:
    with make_public_folder() as folder:
        locked = folder / "locked"
        (locked / "empty").mkdir(parents=True)
        (locked / "empty").chmod(mode)
        locked.chmod(mode)
        for out in ("out", "empty", "empty/out", "new/out"):
            assert run_as_nobody(lambda out=out: check_out(folder / "p", locked / out)) == 2  # type: ignore[misc]
        locked.chmod(0o755)
        (locked / "empty").chmod(0o755)


@pytest.mark.parametrize("name", ["x" * 256, "y" * 300 + "/out", "nul\x1b[2J" + "z" * 300])
def test_a_name_that_is_too_long_is_refused_before_the_work(project: Path, name: str) -> None:
    with pytest.raises(BadValue, match="File name too long") as caught:
        check_out(project, project.parent / name)
    assert "\x1b" not in str(caught.value)


def test_a_failure_midway_leaves_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = migrated_project(project)
    out = project.parent / "out"

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "train.py")

    monkeypatch.setattr(writing, "replace_bytes", full)
    with pytest.raises(BadValue, match="No space left"):
        write_out(outcome, out, {})
    assert os.listdir(project.parent) == ["project"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL])
def test_a_copy_that_is_interrupted_is_not_there_and_the_next_one_removes_what_is_left(
    project: Path, number: int
) -> None:
    out = project.parent / "new" / "out"
    for count in range(40):
        (project / f"file{count}.txt").write_text("x")
    process = subprocess.Popen([sys.executable, "-c", SLOW_COPY, str(project), str(out)], stderr=subprocess.PIPE)
    partial = out.with_name(".out.viaduct-partial")
    while process.poll() is None and len(list(partial.rglob("*.txt"))) < 10:
        time.sleep(0.002)
    process.send_signal(number)
    output = process.communicate(timeout=60)[1].decode()
    assert process.returncode in (-number, 130, 1)
    assert not out.exists()
    assert partial.exists() == (number == signal.SIGKILL), output
    if number != signal.SIGKILL:
        assert "was not written" in output
        assert not out.parent.exists()
    write_out(migrated_project(project), out, {})
    assert len(list(out.glob("*.txt"))) == 40
    assert os.listdir(out.parent) == ["out"]


SLOW_COPY = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[0] or ".")
from viaduct.migration import writing
from viaduct.migration.options import Options
from viaduct.migration.run import migrate_project
copy_file = writing.copy_file
writing.copy_file = lambda *given: (time.sleep(0.01), copy_file(*given))[1]
writing.write_out(migrate_project(Path(sys.argv[1]), Options()), Path(sys.argv[2]), {})
"""


def test_two_copies_to_one_place_at_once_are_refused(project: Path) -> None:
    out = project.parent / "out"
    held = writing.lock_partial_folder(out)
    with pytest.raises(BadValue, match="another `viaduct migrate` is writing"):
        write_out(migrated_project(project), out, {})
    held.release(remove=True)


def test_somebody_elses_folder_of_that_name_is_left_alone(project: Path) -> None:
    out = project.parent / "out"
    partial = project.parent / ".out.viaduct-partial"
    partial.mkdir()
    (partial / "notes.txt").write_text("mine")
    write_out(migrated_project(project), out, {})
    assert (out / "train.py").exists()
    assert (partial / "notes.txt").read_text() == "mine"


def test_a_place_whose_name_is_as_long_as_can_be_is_written(project: Path) -> None:
    out = project.parent / ("x" * 255)
    write_out(migrated_project(project), out, {})
    assert (out / "train.py").exists()


def test_an_empty_folder_that_is_filled_keeps_its_mode(project: Path) -> None:
    out = project.parent / "out"
    out.mkdir(mode=0o700)
    write_out(migrated_project(project), out, {})
    assert out.stat().st_mode & 0o777 == 0o700


def test_in_place_changes_only_what_changed_and_keeps_modes(project: Path) -> None:
    (project / "train.py").chmod(0o750)
    before = contents(project)
    outcome = migrated_project(project)
    write_in_place(outcome)
    after = contents(project)
    assert set(after) == set(before)
    assert {name for name in after if after[name] != before[name]} == {"train.py", "data/pipeline.py"}
    assert (project / "train.py").stat().st_mode & 0o777 == 0o750


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
    scripts = render_start_scripts(migrated_project(project))
    names = ("env.sh", "run_1p.sh", "run_8p.sh", "rank_table_8p.json", "config.py")
    assert {f"scripts/{name}" for name in names} == set(scripts)
    assert '"$here"/../train.py' in scripts["scripts/run_1p.sh"]
    (project / "train.py").unlink()
    (project / "data/pipeline.py").write_text(PIPELINE.replace("32", "32, drop_remainder=True"))
    assert render_start_scripts(migrated_project(project, only=("dataset_drop_remainder",))) == {}


def test_start_scripts_do_not_replace_the_projects_own(project: Path) -> None:
    (project / "scripts").mkdir()
    (project / "scripts/run_8p.sh").write_text("mine\n")
    names = set(render_start_scripts(migrated_project(project)))
    assert "npu_scripts/run_8p.sh" in names
    assert not any(name.startswith("scripts/") for name in names)


def test_the_scripts_of_a_copy_are_understood_by_bash(project: Path) -> None:
    out = project.parent / "out"
    outcome = migrated_project(project)
    write_out(outcome, out, render_start_scripts(outcome))
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
