"""Origin of a run's first weights and its data: a graph of runs, weight files and data.

A run records the file of its first weights as `init`, a dictionary:

    source         the path that `--init` or the recipe names: a run, a checkpoint or a file of weights
    file           path of the file of weights
    sha256, bytes  its checksum and size
    run, run_id    path and id of the run that the file belonged to
    step           step of that run after which the file was written

Any key may be missing, or its value None. The run that the file belonged to may have been moved, so it is searched
among the known runs by its id, or by the checksums of its weights. An origin that is not found, or not followed
further, is a node of kind `missing`. If there are several copies of a run, one with the recorded checksum is shown.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from viaduct.errors import BadRun, BadValue
from viaduct.json_records import rename_pictures
from viaduct.run_files import compute_sha256, list_step_folders, read_manifest
from viaduct.runs.facts import RunFacts
from viaduct.runs.listing import open_run
from viaduct.runs.table import format_percent
from viaduct.terminal import escape_controls

WEIGHTS = ("model.safetensors", "ema.safetensors")  # in checkpoints and finished runs; the second has averaged weights
MAX_GENERATIONS = 50  # largest number of runs in a chain of origins
Kind = Literal["run", "weights", "data", "missing"]
WeightsState = Literal["same", "unrecorded", "missing", "changed"]
"""State of the recorded weights in a run, the best first.

same: the content of a file of weights has the recorded checksum
unrecorded: no checksum was recorded
missing: the recorded file does not exist, nor does any that a checkpoint's manifest lists with this checksum
changed: such a file exists, but its content has another checksum
"""
NOTES: dict[WeightsState, str] = {  # added to the note about a run that was found; the other states add nothing
    "missing": "; its file of these weights is gone, so that the checksum was not checked",
    "changed": "; its weights have changed since: their files have another checksum",
}


@dataclass
class Node:
    """A run, a weight file or data."""

    kind: Kind
    label: str
    note: str = ""
    parents: list[Node] = field(default_factory=list)  # nodes that it was made from

    @property
    def text(self) -> str:
        return f"{self.label}: {self.note}" if self.note else self.label


@dataclass
class Candidates:
    """Runs that the file of another run's first weights may have come from."""

    runs: list[RunFacts]

    def __post_init__(self) -> None:
        self.runs = [run for run in self.runs if has_begun(run)]

    def find(self, init: dict[str, Any]) -> tuple[RunFacts | None, str]:
        """Return the run that a weight file came from and a note about the match; None and the reason if not found."""
        if run := choose_fitting(self.find_by_id(init), init):
            recorded = init.get("run")
            is_there = recorded is None or Path(run.path).absolute() == Path(str(recorded)).absolute()
            moved = "" if is_there else f"; it was at {recorded} then"
            return run, f"found by its id{moved}{describe_fit(run, init)}"
        if run := choose_fitting(self.find_by_checksum(init), init):
            note = "found by the checksum of the weights"
            if init.get("run_id") and run.id != init["run_id"]:
                note = f"another run with the same weights; that of id {init['run_id']} was not found"
            return run, f"{note}{describe_fit(run, init)}"
        return self.find_at_path(init)

    def find_by_id(self, init: dict[str, Any]) -> list[RunFacts]:
        """Return the runs with the recorded id; copies of a run have the same id."""
        run_id = init.get("run_id")
        at_path, _ = self.find_at_path(init)
        runs = [*([at_path] if at_path else []), *self.runs]
        return [run for run in runs if run_id and run.id == run_id]

    def find_by_checksum(self, init: dict[str, Any]) -> list[RunFacts]:
        """Return the runs with a checkpoint that has the recorded checksum, or else with such final weights.

        A checkpoint whose file is gone counts by its manifest; one whose file has changed does not count.
        """
        checksum = init.get("sha256")
        if not checksum:
            return []
        runs = [run for run in self.by_checksum.get(checksum, []) if check_weights(run, init) != "changed"]
        return runs or self.find_final(checksum, init.get("bytes"))

    def find_at_path(self, init: dict[str, Any]) -> tuple[RunFacts | None, str]:
        """Return the run at the recorded path and a note; None and the reason if it is not the origin."""
        if not init.get("run"):
            return None, "the file was not in a run"
        try:
            run = open_run(Path(str(init["run"])))
        except (BadRun, BadValue, OSError):
            return None, f"at {init['run']} there is no run that can be read"
        if run.id and init.get("run_id") and run.id != init["run_id"]:
            return None, f"at {init['run']} there is another run now"
        if not has_begun(run):
            return None, f"the run at {init['run']} has no step, so that the weights are not from it"
        note = describe_fit(run, init)
        return run, f"found by its path alone: whether it is the same run was not recorded{note}"

    @cached_property
    def by_checksum(self) -> dict[str, list[RunFacts]]:
        """Runs by the checksums of weights in the manifests of their checkpoints."""
        runs: dict[str, list[RunFacts]] = {}
        for run in self.runs:
            for checksum in {checksum for _, checksums in list_checkpoints(run) for checksum in checksums.values()}:
                runs.setdefault(checksum, []).append(run)
        return runs

    def find_final(self, checksum: str, size: Any) -> list[RunFacts]:
        """Return the runs whose final weights have this checksum."""
        files = [(run, Path(run.path) / name) for run in self.runs for name in WEIGHTS]
        return [run for run, file in files if has_checksum(file, checksum, size)]


def has_begun(run: RunFacts) -> bool:
    return run.state != "never begun"


def choose_fitting(runs: list[RunFacts], init: dict[str, Any]) -> RunFacts | None:
    """Return the run with the best WeightsState; among equals one whose final weights fit; None without runs."""
    order = get_args(WeightsState)
    return min(runs, key=lambda run: (order.index(check_weights(run, init)), has_other_final(run, init)), default=None)


def describe_fit(run: RunFacts, init: dict[str, Any]) -> str:
    """Return what to add to the note about a match if its weights are not those that were recorded; else empty."""
    state = check_weights(run, init)
    if state == "same" and has_other_final(run, init):
        return "; its checkpoint has the recorded checksum, but its final weights have another checksum"
    return NOTES.get(state, "")


def has_other_final(run: RunFacts, init: dict[str, Any]) -> bool:
    """Return True if the weights are of the run's last step, but its file of final weights has another checksum."""
    final = Path(run.path) / Path(str(init.get("file"))).name
    checksum = init.get("sha256")
    if not checksum or init.get("step") != run.steps or not final.is_file():
        return False
    return not has_checksum(final, checksum, init.get("bytes"))


def check_weights(run: RunFacts, init: dict[str, Any]) -> WeightsState:
    """Return the state of the recorded weights in a run; files are hashed again."""
    checksum, size = init.get("sha256"), init.get("bytes")
    if not checksum:
        return "unrecorded"
    recorded_file = locate_file(run, init)
    files = [recorded_file] if recorded_file else []
    files += [folder / name for folder, sums in list_checkpoints(run) for name in sums if sums[name] == checksum]
    final = [Path(run.path) / name for name in WEIGHTS]
    if any(has_checksum(file, checksum, size) for file in dict.fromkeys([*files, *final])):
        return "same"
    return "changed" if any(file.exists() for file in files) else "missing"


def locate_file(run: RunFacts, init: dict[str, Any]) -> Path | None:
    """Return the path of the recorded file in a run that may have been moved; None if it was not in a run."""
    try:
        return Path(run.path) / Path(str(init.get("file"))).relative_to(Path(str(init.get("run"))).absolute())
    except ValueError:
        return None


def has_checksum(file: Path, checksum: str, size: Any) -> bool:
    """Return True if a file has this checksum; a file of another size is not read."""
    return file.is_file() and (size is None or file.stat().st_size == size) and hash_file(file) == checksum


def list_checkpoints(run: RunFacts) -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield the folder of each readable checkpoint and the checksums of its weight files."""
    for folder in list_step_folders(Path(run.path) / "checkpoints").values():
        with contextlib.suppress(BadRun):
            files = read_manifest(folder)["files"]
            yield folder, {name: files[name]["sha256"] for name in WEIGHTS if name in files}


def hash_file(file: Path) -> str | None:
    """Return the SHA-256 of a file; None if it cannot be read."""
    try:
        return compute_sha256(file)
    except OSError:
        return None


def trace_lineage(run: RunFacts, others: Iterable[RunFacts]) -> Node:
    """Return the graph of a run's origins; `others` are the runs among which they are searched."""
    return trace_run(run, Candidates(list(others)), descendants=())


def trace_run(run: RunFacts, candidates: Candidates, descendants: tuple[str, ...]) -> Node:
    """Return a run as a node with its origins; `descendants` are the ids or paths of the runs that lead to it."""
    node = Node("run", run.path, describe_result(run))
    key = run.id or str(Path(run.path).absolute())
    if key in descendants:
        return Node("missing", run.path, "named above already: the records form a cycle")
    if len(descendants) >= MAX_GENERATIONS:
        return Node("missing", run.path, f"not followed further: {MAX_GENERATIONS} generations are above")
    if weights := trace_weights(run, candidates, (*descendants, key)):
        node.parents.append(weights)
    node.parents.append(trace_data(run))
    return node


def describe_result(run: RunFacts) -> str:
    parts = [run.recipe, run.state, f"{run.steps:,} steps"]
    if run.top1 is not None:
        parts.append(f"top-1 {format_percent(run.top1)} %")
    if run.fields.get("ema"):
        parts.append(f"averages its weights (ema, decay {run.fields.get('ema.decay', '?')})")
    return ", ".join(parts)


def trace_weights(run: RunFacts, candidates: Candidates, descendants: tuple[str, ...]) -> Node | None:
    """Return the node of the file that gave a run its first weights; None if neither recipe nor record names a file."""
    source = run.fields.get("init.source")
    if not source and not run.init:
        return None
    if run.init is None:  # early versions of viaduct did not record it
        parent, note = candidates.find_at_path({"run": source})
        node = Node("weights", f"weights {source}", "checksum not recorded")
    else:
        parent, note = candidates.find(run.init)
        node = Node("weights", f"weights {run.init.get('source')}", describe_file(run.init))
    if parent is None:
        node.parents.append(Node("missing", "not found", note))
    else:
        origin = trace_run(parent, candidates, descendants)
        origin.note = f"{origin.note}; {note}"
        node.parents.append(origin)
    return node


def describe_file(init: dict[str, Any]) -> str:
    """Return name, step and beginning of the checksum of a weight file."""
    file = Path(str(init.get("file")))
    parts = [f"checkpoints/{file.parent.name}/{file.name}" if file.parent.parent.name == "checkpoints" else file.name]
    if file.name == "ema.safetensors":
        parts.append("averaged weights")
    if init.get("step") is not None:
        parts.append(f"after step {init['step']:,}")
    checksum = init.get("sha256")
    parts.append(f"sha256 {checksum[:12]}" if checksum else "no checksum recorded")
    return ", ".join(parts)


def trace_data(run: RunFacts) -> Node:
    """Return the node of a run's data; its parent tells what `viaduct data build` made it from, if that is recorded."""
    location = run.data_path or f"{run.data} (built in)"
    if run.fingerprint is None:
        return Node("data", f"data {location}", "fingerprint not recorded")
    node = Node("data", f"data {location}", f"fingerprint {run.fingerprint[:12]} ({run.fingerprint_basis})")
    if run.build:
        node.parents.append(Node("data", "built by `viaduct data build`", describe_build(run.build)))
    return node


def describe_build(build: dict[str, Any]) -> str:
    """Return what `viaduct data build` read, and its options."""
    source, options = (value if isinstance(value := build.get(name), dict) else {} for name in ("source", "options"))
    source = rename_pictures(source)  # early versions of `data build` recorded images as pictures
    counts = [f"{source[key]:,} {key}" for key in ("images", "classes", "bytes") if isinstance(source.get(key), int)]
    return ", ".join([*counts, *(f"{name} {value}" for name, value in options.items())])


def render_tree(node: Node, prefix: str = "") -> str:
    """Return a node and its origins as text."""
    lines = [escape_controls(node.text)]
    for position, parent in enumerate(node.parents):
        is_last = position == len(node.parents) - 1
        branch, indent = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
        lines.append(prefix + branch + render_tree(parent, prefix + indent))
    return "\n".join(lines)


def to_record(node: Node) -> dict[str, Any]:
    """Return a node and its origins as JSON data."""
    return {"kind": node.kind, "label": node.label, "note": node.note, "from": [to_record(p) for p in node.parents]}
