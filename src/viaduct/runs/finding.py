"""Find run directories below a folder: a folder with recipe.json is one, and is not searched further.

Links are followed, each folder is visited once. Folders that look like part of a run, and folders that cannot be read,
are reported with the reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from viaduct.errors import BadValue

RECIPE = "recipe.json"
DEEPEST = 6
"""Levels of folders below the one that was named."""
SIGNS = {"metrics.jsonl", "summary.json", "checkpoints", ".lock"}
"""What only a run leaves: a folder with one of them and without recipe.json is part of a run."""
OTHER_VERBS = {"carry.json", "drift.csv", "plan.json", "profile.json", "study.json"}
"""What other verbs leave (carry, compare, rehearse, profile, search): a folder with one of them is no part of a run."""
LEFT_OUT = {"checkpoints", "node_modules", "__pycache__", "site-packages"}


@dataclass(frozen=True)
class Problem:
    """A folder that is not listed as a run, and why."""

    path: str
    reason: str


@dataclass
class Search:
    """The folders of runs below some roots, and what was found beside them."""

    runs: list[str]
    problems: list[Problem]
    cut_off: int = 0
    """Folders that lie deeper than is searched."""


def search_folders(roots: list[Path]) -> Search:
    """Return the run directories below these folders; a root may be a run itself."""
    found = Search([], [])
    seen: set[tuple[int, int]] = set()
    for root in roots:
        check_root(root)
        walk(str(root), 0, found, seen)
    return found


def check_root(root: Path) -> None:
    """Refuse a folder that was named and cannot be listed."""
    try:
        os.scandir(root).close()
    except NotADirectoryError:
        raise BadValue(f"{str(root)!r} is a file, not a folder of runs.", "Give a run or a folder of runs.") from None
    except FileNotFoundError:
        raise BadValue(
            f"there is no folder {str(root)!r}.",
            "Give a run or a folder of runs; `viaduct train shapes_taster --run runs/try1` makes one.",
        ) from None
    except OSError as error:
        raise BadValue(
            f"{str(root)!r} cannot be read: {error.strerror}.", "Give a folder that may be listed."
        ) from None


def walk(folder: str, depth: int, found: Search, seen: set[tuple[int, int]]) -> None:
    """Add what lies at and below a folder; one that was met before, by whatever path, is passed over."""
    if not is_new(folder, seen):
        return
    if os.path.lexists(f"{folder}/{RECIPE}"):
        found.runs.append(folder)
        return
    try:
        with os.scandir(folder) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        found.problems.append(Problem(folder, f"cannot be read: {error.strerror}"))
        return
    names = {entry.name for entry in listed}
    if (signs := SIGNS & names) and not names & OTHER_VERBS:
        found.problems.append(Problem(folder, describe_part(signs)))
        return
    if "plan.json" in names:  # a rehearsal: its folder `work` is a copy of the user's
        return
    for path in subfolders(listed):
        if depth == DEEPEST:
            found.cut_off += 1
        else:
            walk(path, depth + 1, found, seen)


def subfolders(entries: list[os.DirEntry[str]]) -> Iterator[str]:
    for entry in entries:
        if entry.name.startswith(".") or entry.name in LEFT_OUT:
            continue
        try:
            if entry.is_dir():
                yield entry.path
        except OSError:  # a link that leads to itself
            continue


def is_new(folder: str, seen: set[tuple[int, int]]) -> bool:
    """Return True the first time that a folder is met."""
    try:
        facts = os.stat(folder)
    except OSError:
        return True  # the caller says that it cannot be read
    key = (facts.st_dev, facts.st_ino)
    if key in seen:
        return False
    seen.add(key)
    return True


def describe_part(signs: set[str]) -> str:
    if signs == {".lock"}:
        return "a run that never began: it holds only .lock"
    return f"not a whole run: it has {', '.join(sorted(signs - {'.lock'}))}, but no recipe.json"
