"""Search for run directories below a folder: folders with recipe.json.

Links are followed, and each folder is visited once. Not searched are the insides of runs (also of incomplete ones), of
records of rehearsals, of hidden folders and of `SKIPPED_FOLDERS`, and folders more than `MAX_DEPTH` levels deep.
Incomplete runs and unreadable folders are reported with the reason.
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
"""Names in a run directory. A folder with one of them and without recipe.json is an incomplete run."""
OTHER_VERBS_FILES = {"carry.json", "drift.csv", "plan.json", "profile.json", "study.json"}
"""Files of carry, compare, rehearse, profile and search. A folder with one of them is not an incomplete run."""
SKIPPED_FOLDERS = {"checkpoints", "node_modules", "__pycache__", "site-packages"}


@dataclass(frozen=True)
class Problem:
    """A folder that is not listed as a run, and the reason."""

    path: str
    reason: str


@dataclass
class FoundRuns:
    """Result of a search for runs."""

    runs: list[str]
    problems: list[Problem]
    too_deep: int = 0  # number of folders `MAX_DEPTH` + 1 levels deep, which are not searched


def search_folders(roots: list[Path]) -> FoundRuns:
    """Return the run directories at and below these folders; raise BadValue for a root that cannot be listed."""
    result = FoundRuns([], [])
    visited: set[tuple[int, int]] = set()
    for root in roots:
        check_root(root)
        search_folder(str(root), 0, result, visited)
    return result


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


def search_folder(folder: str, depth: int, result: FoundRuns, visited: set[tuple[int, int]]) -> None:
    """Add the runs and problems at and below a folder to the result.

    `visited` has the device and inode of each visited folder.
    """
    try:
        status = os.stat(folder)
    except OSError:
        pass  # scandir below fails, too, and its error is reported
    else:
        if (status.st_dev, status.st_ino) in visited:
            return
        visited.add((status.st_dev, status.st_ino))
    if os.path.lexists(f"{folder}/{RECIPE_JSON}"):
        result.runs.append(folder)
        return
    try:
        with os.scandir(folder) as iterator:
            entries = sorted(iterator, key=lambda entry: entry.name)
    except OSError as error:
        result.problems.append(Problem(folder, f"cannot be read: {error.strerror}"))
        return
    names = {entry.name for entry in entries}
    if (run_files := RUN_FILES & names) and not names & OTHER_VERBS_FILES:
        result.problems.append(Problem(folder, describe_incomplete(run_files)))
        return
    # A rehearsal wrote plan.json. Its folder `work` mirrors the folder of the user's script, with the runs in it.
    if "plan.json" in names:
        return
    for path in list_subfolders(entries):
        if depth == MAX_DEPTH:
            result.too_deep += 1
        else:
            search_folder(path, depth + 1, result, visited)


def list_subfolders(entries: list[os.DirEntry[str]]) -> Iterator[str]:
    """Yield the paths of the subfolders to search."""
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
