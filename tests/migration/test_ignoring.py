"""Files that git ignores, compared with git's own answer."""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path

import pytest

from migration.test_walk import git, make_files
from viaduct.migration.ignoring import parse_pattern
from viaduct.migration.walk import walk


def ignored_as_git_says(folder: Path) -> set[str]:
    words = ["git", "-C", str(folder), "ls-files", "--others", "--ignored", "--exclude-standard", "-z"]
    answer = subprocess.run(words, check=True, capture_output=True).stdout
    return {os.fsdecode(name) for name in answer.split(b"\0")} - {""}


def ignored_as_we_say(folder: Path) -> set[str]:
    found = walk(folder)
    assert {skipped_file.reason for skipped_file in found.skipped} <= {"ignored by git", "version control"}
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    return {path for path in files if not path.startswith(".git/")} - {*found.scripts, *found.other_files}


FILES = ("a.py", "ab.py", "b/a.py", "b/c/a.py", "b/c/d.txt", "build/x.py", "b/build/y.py", "[x].py", "café.py", "#c")


@pytest.mark.parametrize(
    "lines",
    [
        ["*.py", "!a.py"],
        ["/a.py"],
        ["b/a.py"],
        ["build/"],
        ["/build/"],
        ["**/build"],
        ["b/**"],
        ["b/**/a.py"],
        ["**/c/**"],
        ["**"],
        ["b/*", "!b/c/"],
        ["b/*", "!b/c"],
        ["a?.py", "[!x].py"],
        ["[a-c].py", "\\[x\\].py"],
        ["[[:alpha:]].py", "[]x].py"],
        ["a[[:graph:]].py"],
        ["[^[:cntrl:]].py", "[[:print:]]c"],
        ["[[:unknown:]x].py"],
        ["[^[:unknown:]].py"],
        ["\\#c", "# comment", "", "caf?.py"],
        ["a.py   ", "\\!x", "/"],
        ["build", "!build/x.py"],
        ["b", "!b/c/a.py"],
        ["*/a.py", "b*/"],
        ["[a", "a.py\\"],
        ["***.py", "b**c"],
    ],
)
def test_patterns_mean_what_git_means(tmp_path: Path, lines: list[str]) -> None:
    make_files(tmp_path, *FILES)
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("\n".join(lines) + "\n")
    assert ignored_as_we_say(tmp_path) == ignored_as_git_says(tmp_path)


def test_random_patterns_in_nested_folders_mean_what_git_means(tmp_path: Path) -> None:
    draw = random.Random(18)
    parts = ("a", "b", "*", "**", "?", "[ab]", "*a", "a*", "*.py", "a.py", "ab.py")
    for trial in range(12):
        folder = tmp_path / str(trial)
        make_files(folder, *(f"{x}/{y}/{z}.py" for x in ("a", "b") for y in ("a", "ba") for z in ("a", "ab")), "a.py")
        git(folder, "init", "-q")
        (folder / ".git/info/exclude").write_text(draw.choice(parts[:2]) + "b.py\n")
        for prefix in ("", "a/", "b/ba/"):
            lines = [
                draw.choice(("", "", "!"))
                + draw.choice(("", "/"))
                + "/".join(draw.choices(parts, k=draw.choice((1, 1, 2, 3))))
                + draw.choice(("", "/"))
                for _ in range(draw.randrange(4))
            ]
            (folder / prefix / ".gitignore").write_text("\n".join(lines) + "\n")
        tracked = draw.sample(sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.py")), 2)
        git(folder, "add", "-f", *tracked)
        rules = {path: (folder / path).read_text() for path in (".gitignore", "a/.gitignore", "b/ba/.gitignore")}
        assert ignored_as_we_say(folder) == ignored_as_git_says(folder), (rules, tracked)


def test_what_git_tracks_is_not_ignored(tmp_path: Path) -> None:
    make_files(tmp_path, "build/kept.py", "build/made.py")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "build/kept.py")
    (tmp_path / ".gitignore").write_text("build/\n")
    assert walk(tmp_path).scripts == ["build/kept.py"]


def test_the_users_own_list_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    make_files(tmp_path / "project", "a.py", "scratch.py", "other.py")
    git(tmp_path / "project", "init", "-q")
    (tmp_path / "home/.config/git").mkdir(parents=True)
    (tmp_path / "home/.config/git/ignore").write_text("scratch.py\n")
    assert walk(tmp_path / "project").scripts == ["a.py", "other.py"]
    (tmp_path / "home/mine").write_text("other.py\n")
    (tmp_path / "home/.gitconfig").write_text('[core]\n\texcludesFile = "~/mine" ; a comment\n')
    assert walk(tmp_path / "project").scripts == ["a.py", "scratch.py"]


def test_a_repository_within_has_its_own_rules(tmp_path: Path) -> None:
    make_files(tmp_path, "a.py", "sub/a.py", "sub/b.py")
    git(tmp_path, "init", "-q")
    git(tmp_path / "sub", "init", "-q")
    (tmp_path / ".gitignore").write_text("a.py\n")
    (tmp_path / "sub/.gitignore").write_text("b.py\n")
    assert walk(tmp_path).scripts == ["sub/a.py"]


@pytest.mark.parametrize("what", ["fifo", "link"])
def test_a_list_that_is_no_plain_file_is_not_waited_for(tmp_path: Path, what: str) -> None:
    make_files(tmp_path, "a.py")
    git(tmp_path, "init", "-q")
    if what == "fifo":
        os.mkfifo(tmp_path / ".gitignore")
    else:
        os.symlink("/dev/zero", tmp_path / ".gitignore")
    assert walk(tmp_path).scripts == ["a.py"]


def test_no_pattern_takes_long() -> None:
    pattern = parse_pattern("*a" * 60 + "b")
    deep = parse_pattern("**/a/" * 40 + "b")
    assert pattern is not None
    assert deep is not None
    began = time.process_time()
    assert not pattern.matches("a" * 250)
    assert not deep.matches("a/" * 500 + "c")
    assert time.process_time() - began < 5
