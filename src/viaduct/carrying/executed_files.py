"""The files that a run executed, checked against the files in the folder of its side (the tree)."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from viaduct.rehearsal.plan import Plan
from viaduct.rehearsal.provenance import MODULES_FILE

Problem = Literal["wrong tree", "not the file", ""]


@dataclass(frozen=True)
class ExecutedFile:
    """A file of the project that a run executed, with the hash of the file's bytes when it was executed."""

    position: str  # path within the project, which is the same on both sides
    file: str  # full path
    sha256: str
    names: tuple[str, ...] = ()  # under which it was imported
    processes: int = 1  # number of processes that executed it
    problem: Problem = ""
    detail: str = ""


@dataclass(frozen=True)
class ExecutedFiles:
    """Files that a run executed."""

    in_project: list[ExecutedFile] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)  # paths of Python files that neither side's tree has

    @property
    def problems(self) -> list[ExecutedFile]:
        return [file for file in self.in_project if file.problem]

    @property
    def positions(self) -> set[str]:
        """Return the paths, within the project, of the files without a problem."""
        return {file.position for file in self.in_project if not file.problem}

    def as_record(self) -> dict[str, Any]:
        return {"modules": [asdict(file) for file in self.in_project], "outside": self.outside}


def read_executed_files(plan: Plan) -> ExecutedFiles:
    """Check the files that a run has recorded (rehearsal/provenance.py) against those on disk."""
    path = Path(plan.record_folder) / MODULES_FILE
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    grouped: dict[tuple[str, str, bool], list[dict[str, Any]]] = {}
    for line in lines:
        entry = json.loads(line)
        grouped.setdefault((entry["file"], entry["sha256"], entry["from_file"]), []).append(entry)
    in_project, outside = [], []
    for entries in grouped.values():
        if is_outside(entries[0], plan):
            outside.append(entries[0]["file"])
        else:
            in_project.append(check_executed(entries, plan))
    return ExecutedFiles(sorted(in_project, key=lambda file: file.position), sorted(set(outside)))


def is_outside(entry: dict[str, Any], plan: Plan) -> bool:
    """Return True for a file of neither side's tree: a library, or a module that the script has written."""
    if entry["tree"] != "outside":
        return False
    trees = (plan.source_tree, *plan.other_source_trees)
    return entry["position"] is None or not any((Path(tree) / entry["position"]).is_file() for tree in trees)


def check_executed(entries: list[dict[str, Any]], plan: Plan) -> ExecutedFile:
    """Check one executed file. `entries`: its records, one from each import in each process."""
    entry = entries[0]
    position = entry["position"] or entry["file"]
    names = tuple(dict.fromkeys(item["name"] for item in entries if item["name"]))
    processes = len({item["pid"] for item in entries})
    problem, detail = find_problem(entry, Path(plan.source_tree) / position)
    return ExecutedFile(position, entry["file"], entry["sha256"], names, processes, problem, detail)


def find_problem(entry: dict[str, Any], expected: Path) -> tuple[Problem, str]:
    """Return the problem of an executed file and its detail; empty if it is the file `expected` of the side's tree."""
    if entry["tree"] == "other" or not expected.is_file():
        return "wrong tree", entry["file"]
    if not entry["from_file"]:
        return "not the file", "the executed code is not the compiled file"
    if hashlib.sha256(expected.read_bytes()).hexdigest() != entry["sha256"]:
        return "not the file", f"the file that was executed, {entry['file']}, has other content"
    return "", ""
