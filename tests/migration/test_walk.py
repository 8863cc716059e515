"""Files of a folder that are migrated, copied or left out; nothing outside it is touched."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from viaduct.errors import BadValue
from viaduct.migration.walk import SkippedPath, find_unsaved_files, walk


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(["git", *who, "-C", str(folder), *words], check=True, capture_output=True)


def make_files(folder: Path, *names: str) -> None:
    for name in names:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("x = 1\n")


def list_skipped(folder: Path) -> dict[str, str]:
    return {skipped_file.path: skipped_file.reason for skipped_file in walk(folder).skipped}


@pytest.mark.parametrize(
    ("name", "first", "mode", "script"),
    [
        ("train", "#!/usr/bin/env python", 0o755, True),
        ("train", "#!/usr/bin/python3.7 -u", 0o644, True),
        ("train", "#! /opt/conda/bin/python", 0o755, True),
        ("train.cgi", "#!/usr/bin/env -S python3 -O", 0o755, True),
        ("train.txt", "#!/usr/bin/env python", 0o644, False),
        ("train", "#!/bin/bash", 0o755, False),
        ("train", "#!/bin/sh\npython train.py", 0o755, False),
        ("train", "#!/opt/pythonic/bin/sh", 0o755, False),
        ("train", "#!/opt/python/bin/sh", 0o755, False),
        ("train", "import tensorflow as tf", 0o755, False),
        ("train", "", 0o755, False),
    ],
)
def test_a_script_without_a_suffix_is_known_by_its_first_line(
    tmp_path: Path, name: str, first: str, mode: int, script: bool
) -> None:
    (tmp_path / name).write_text(first + "\n")
    (tmp_path / name).chmod(mode)
    assert walk(tmp_path).scripts == ([name] if script else [])
    assert walk(tmp_path).other_files == ([] if script else [name])


def test_every_reason_has_its_chinese(tmp_path: Path) -> None:
    make_files(tmp_path, ".git/x", "__pycache__/x", "node_modules/x", "env/pyvenv.cfg")
    os.symlink("/etc/passwd", tmp_path / "absolute")
    os.symlink("../x", tmp_path / "outside")
    os.symlink("nothing", tmp_path / "dangling")
    os.mkfifo(tmp_path / "fifo")
    make_files(tmp_path, ".viaduct-migration/journal")
    found = walk(tmp_path).skipped
    assert len(found) == 9
    assert not [file for file in found if file.reason_in("zh").isascii()]
    assert SkippedPath("a", "cannot be read: Permission denied").reason_in("zh") == "无法读取:Permission denied"


def test_scripts_notebooks_and_the_rest(tmp_path: Path) -> None:
    make_files(tmp_path, "b.py", "a/c.py", "a/n.ipynb", "a/weights.bin", "README")
    found = walk(tmp_path)
    assert found.scripts == ["a/c.py", "a/n.ipynb", "b.py"]
    assert found.other_files == ["README", "a/weights.bin"]
    assert found.folders == ["a"]


def test_environments_and_caches_are_left_out_and_named(tmp_path: Path) -> None:
    make_files(
        tmp_path, "a.py", "env/lib/x.py", "env/pyvenv.cfg", "__pycache__/a.py", ".git/hook.py", "sub/__pycache__/y.py"
    )
    assert walk(tmp_path).scripts == ["a.py"]
    assert list_skipped(tmp_path) == {
        ".git": "version control",
        "__pycache__": "a cache",
        "env": "a virtual environment",
        "sub/__pycache__": "a cache",
    }


def test_what_git_ignores_is_left_out(tmp_path: Path) -> None:
    make_files(tmp_path, "a.py", "build/b.py", "local_settings.py")
    (tmp_path / ".gitignore").write_text("build/\nlocal_*.py\n")
    git(tmp_path, "init", "-q")
    assert walk(tmp_path).scripts == ["a.py"]
    assert list_skipped(tmp_path)["build"] == list_skipped(tmp_path)["local_settings.py"] == "ignored by git"


def test_a_folder_that_was_named_is_looked_at_though_a_repository_around_it_ignores_it(tmp_path: Path) -> None:
    make_files(tmp_path, "runs/a.py", "runs/sub/b.py")
    (tmp_path / ".gitignore").write_text("runs/\n")
    git(tmp_path, "init", "-q")
    assert walk(tmp_path / "runs").scripts == ["a.py", "sub/b.py"]


def test_no_command_that_the_project_names_is_started(tmp_path: Path) -> None:
    project = tmp_path / "project"
    make_files(project, "a.py", "b.py")
    git(project, "init", "-q")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "all")
    spy = tmp_path / "spy.sh"
    spy.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n")
    spy.chmod(0o755)
    (project / ".gitattributes").write_text("*.py filter=spy diff=spy\n")
    for key in ("filter.spy.clean", "filter.spy.process", "filter.spy.smudge", "core.fsmonitor", "diff.spy.textconv"):
        git(project, "config", key, str(spy))
    hook = project / ".git/hooks/post-index-change"
    hook.write_bytes(spy.read_bytes())
    hook.chmod(0o755)
    os.utime(project / "a.py")
    (project / "b.py").write_text("x = 2\n")
    found = walk(project)
    assert found.scripts == ["a.py", "b.py"]
    assert find_unsaved_files(found) == [".gitattributes", "b.py"]
    assert not (tmp_path / "ran").exists()


def test_links_are_never_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    make_files(outside, "secret.py")
    project = tmp_path / "project"
    make_files(project, "a.py", "sub/b.py")
    os.symlink(outside, project / "absolute")
    os.symlink("../outside/secret.py", project / "out.py")
    os.symlink("sub", project / "within")
    os.symlink(".", project / "loop")
    found = walk(project)
    assert found.scripts == ["a.py", "sub/b.py"]
    assert found.links == ["loop", "within"]
    assert set(list_skipped(project)) == {"absolute", "out.py"}


def test_pipes_and_sockets_are_left_out(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    make_files(tmp_path, "a.py")
    assert walk(tmp_path).scripts == ["a.py"]
    assert list_skipped(tmp_path) == {"pipe.py": "not a plain file"}


def test_one_file_is_itself_alone(tmp_path: Path) -> None:
    make_files(tmp_path, "a.py", "b.py")
    found = walk(tmp_path / "a.py")
    assert found.is_single_script
    assert (found.root, found.scripts) == (tmp_path, ["a.py"])


@pytest.mark.parametrize(("name", "word"), [("none.py", "there is no"), ("data.txt", "neither")])
def test_what_cannot_be_migrated_is_reported(tmp_path: Path, name: str, word: str) -> None:
    (tmp_path / "data.txt").write_text("x")
    with pytest.raises(BadValue, match=word):
        walk(tmp_path / name)


def test_a_link_to_nothing_is_made_again_and_named(tmp_path: Path) -> None:
    make_files(tmp_path, "a.py")
    os.symlink("gone.py", tmp_path / "b.py")
    found = walk(tmp_path)
    assert (found.scripts, found.links) == (["a.py"], ["b.py"])
    assert [(skipped_file.path, skipped_file.is_deliberate) for skipped_file in found.skipped] == [("b.py", False)]


def test_the_git_file_of_a_worktree_is_no_file_of_the_project(tmp_path: Path) -> None:
    make_files(tmp_path, "a.py")
    (tmp_path / ".git").write_text("gitdir: /elsewhere\n")
    found = walk(tmp_path)
    assert (found.scripts, found.other_files) == (["a.py"], [])
