"""Find run directories below a folder. A folder with recipe.json is a run directory, and is not searched further.

Links are followed, and each folder is visited once. Hidden folders, folders in `SKIPPED_FOLDERS` and those more than
`MAX_DEPTH` levels deep are not searched. Folders that look like an incomplete run, and folders that cannot be read, are
reported with the reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from viaduct.errors import BadValue

RECIPE_JSON = "recipe.json"
MAX_DEPTH = 6
"""Levels of folders that are searched below a root."""
RUN_FILES = {"metrics.jsonl", "summary.json", "checkpoints", ".lock"}
"""Names in a run directory: a folder with one of them and without recipe.json is taken for an incomplete run."""
OTHER_VERBS_FILES = {"carry.json", "drift.csv", "plan.json", "profile.json", "study.json"}
"""Files of other verbs (carry, compare, rehearse, profile, search): a folder with one of them is no incomplete run."""
SKIPPED_FOLDERS = {"checkpoints", "node_modules", "__pycache__", "site-packages"}


@dataclass(frozen=True)
class Problem:
    """A folder that is not listed as a run, and why."""

    path: str
    reason: str


@dataclass
class FoundRuns:
    """Run directories below some roots, and the folders that are not listed or not searched."""

    runs: list[str]
    problems: list[Problem]
    cut_off: int = 0
    """Folders that lie `MAX_DEPTH` + 1 levels deep; neither they nor the folders below them are searched."""


def search_folders(roots: list[Path]) -> FoundRuns:
    """Return the run directories below these folders; a root may be a run itself.

    Raise BadValue for a root that cannot be listed.
    """
    found = FoundRuns([], [])
    visited: set[tuple[int, int]] = set()
    for root in roots:
        check_root(root)
        search_folder(str(root), 0, found, visited)
    return found


def check_root(root: Path) -> None:
    """Raise BadValue if a root is missing, is a file or cannot be listed."""
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


def search_folder(folder: str, depth: int, found: FoundRuns, visited: set[tuple[int, int]]) -> None:
    """Add the runs and problems at and below a folder to `found`.

    A folder that was visited by another path is skipped; `visited` has the device and inode of each folder.
    """
    try:
        status = os.stat(folder)
    except OSError:
        pass  # listing it fails as well, which is reported below
    else:
        if (status.st_dev, status.st_ino) in visited:
            return
        visited.add((status.st_dev, status.st_ino))
    if os.path.lexists(f"{folder}/{RECIPE_JSON}"):
        found.runs.append(folder)
        return
    try:
        with os.scandir(folder) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        found.problems.append(Problem(folder, f"cannot be read: {error.strerror}"))
        return
    names = {entry.name for entry in listed}
    if (run_files := RUN_FILES & names) and not names & OTHER_VERBS_FILES:
        found.problems.append(Problem(folder, describe_incomplete(run_files)))
        return
    # The folder `work` of a rehearsal mirrors the folder of the user's script, with the runs in it.
    if "plan.json" in names:
        return
    for path in list_subfolders(listed):
        if depth == MAX_DEPTH:
            found.cut_off += 1
        else:
            search_folder(path, depth + 1, found, visited)


def list_subfolders(entries: list[os.DirEntry[str]]) -> Iterator[str]:
    for entry in entries:
        if entry.name.startswith(".") or entry.name in SKIPPED_FOLDERS:
            continue
        try:
            if entry.is_dir():
                yield entry.path
        except OSError:  # such as a link that leads to itself
            continue


def describe_incomplete(run_files: set[str]) -> str:
    if run_files == {".lock"}:
        return "a run that never began: of a run's files it has only .lock"
    return f"not a whole run: it has {', '.join(sorted(run_files - {'.lock'}))}, but no recipe.json"
