"""Runs below some folders with their current states, and the folders that are not listed, with the reason."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from viaduct.errors import BadRun, BadValue
from viaduct.runs.facts import RunFacts
from viaduct.runs.finding import MAX_DEPTH, Problem, search_folders
from viaduct.runs.index import RunIndex, open_index
from viaduct.runs.reading import read_run, read_signature
from viaduct.runs.state import set_state

DEFAULT_ROOT = Path("runs")


@dataclass
class Listing:
    """Runs below some folders, the folders that are not listed as runs, and notes about the search."""

    runs: list[RunFacts]
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def list_runs(roots: list[Path]) -> Listing:
    """Return the runs below these folders (below `runs/` if the list is empty), the most recently changed first."""
    roots = roots or [DEFAULT_ROOT]
    search = search_folders(roots)
    index = open_index(roots)
    listing = Listing([], search.problems)
    if search.too_deep:
        note = f"{search.too_deep:,} folders lie more than {MAX_DEPTH} levels deep and were not searched"
        listing.notes.append(note)
    for folder in search.runs:
        try:
            run = load_run(folder, index)
        except BadRun as error:
            listing.problems.append(Problem(folder, error.message.rstrip(".")))
            continue
        except OSError as error:
            listing.problems.append(Problem(folder, f"cannot be read: {error.strerror or error}"))
            continue
        run.name = name_run(folder, roots)
        set_state(run)
        listing.runs.append(run)
    index.write(set(search.runs))
    listing.runs.sort(key=lambda run: run.changed or 0.0, reverse=True)
    return listing


def load_run(folder: str, index: RunIndex) -> RunFacts:
    """Return the facts of a run from the index if its files have not changed, else from the files."""
    signature = read_signature(folder)
    if (stored := index.find(folder, signature)) is not None:
        return stored
    run, digest = read_run(folder, signature, index.find_digest(folder))
    index.store(run, signature, digest)
    return run


def open_run(path: Path) -> RunFacts:
    """Return the run at a path; raise BadValue if it is not a folder, BadRun without an intact recipe.json."""
    folder = str(path)
    if not path.is_dir():
        problem = "is a file, not a run" if path.exists() else "does not exist"
        raise BadValue(f"{folder!r} {problem}.", "`viaduct runs` lists the runs below runs/.")
    run, _ = read_run(folder, read_signature(folder), earlier=None)
    run.name = folder
    set_state(run)
    return run


def name_run(folder: str, roots: list[Path]) -> str:
    """Return the name of a run in the table: its path, relative to the root if there is only one root."""
    if len(roots) == 1 and folder != str(roots[0]):  # equal: the root is the run itself
        return os.path.relpath(folder, roots[0])
    return folder


def require_runs(listing: Listing, roots: list[Path]) -> None:
    """Raise BadValue if no run is listed; its hints are the reasons why folders were not listed."""
    if listing.runs:
        return
    folders = " or ".join(repr(str(root)) for root in roots or [DEFAULT_ROOT])
    reasons = [f"{problem.path}: {problem.reason}." for problem in listing.problems[:5]]
    raise BadValue(
        f"no run was found in {folders} that can be read.",
        *reasons,
        "`viaduct train shapes_taster --run runs/try1` makes one.",
    )
