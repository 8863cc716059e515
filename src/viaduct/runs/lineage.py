"""Origin of a run's first weights and its data: a graph of runs, weight files and data.

A run records the file that gave its first weights: path, SHA-256, and the id of the run that it belonged to. A run that
was moved or renamed since is found again by its id, or by the checksum in the manifests of its checkpoints. An
origin that cannot be found is a node of kind `missing`. Of several copies of a run the one whose weights still have the
recorded checksum is shown; where none has, the note says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from viaduct.errors import BadRun, BadValue
from viaduct.run_files import read_manifest, step_folders
from viaduct.runs.facts import RunFacts
from viaduct.runs.listing import open_run
from viaduct.runs.table import write_percent
from viaduct.terminal import escape_controls

WEIGHTS = ("model.safetensors", "ema.safetensors")
MAX_GENERATIONS = 50
Kind = Literal["run", "weights", "data", "missing"]
Verdict = Literal["same", "unrecorded", "missing", "changed"]
ORDER: tuple[Verdict, ...] = ("same", "unrecorded", "missing", "changed")
"""Of several runs that may be the origin, the one with the earliest of these verdicts is shown."""
NOTES: dict[Verdict, str] = {
    "same": "",
    "unrecorded": "",
    "missing": "; its file of these weights is gone, so that the checksum was not checked",
    "changed": "; its weights have changed since: no file there has the recorded checksum",
}


@dataclass
class Node:
    """A run, a weight file or data; `parents` are the nodes that it was made from."""

    kind: Kind
    label: str
    note: str = ""
    parents: list[Node] = field(default_factory=list)

    @property
    def text(self) -> str:
        return f"{self.label}: {self.note}" if self.note else self.label


@dataclass
class Ancestors:
    """Runs that may have given weights to others, found by id or by the checksums of their files."""

    runs: list[RunFacts]

    def __post_init__(self) -> None:
        self.runs = [run for run in self.runs if has_begun(run)]
        self._by_checksum: dict[str, list[RunFacts]] | None = None

    def find(self, init: dict[str, Any]) -> tuple[RunFacts | None, str]:
        """Return the run that a weight file came from, and a note: how it was found and whether its weights still fit.

        The run is None if it was not found; then the note says why.
        """
        if found := choose_fitting(self.find_by_id(init), init):
            moved = "" if is_same_place(found.path, init.get("run")) else f"; it was at {init.get('run')} then"
            return found, f"found by its id{moved}{describe_fit(found, init)}"
        if found := choose_fitting(self.find_by_checksum(init), init):
            another = init.get("run_id") and found.id != init["run_id"]
            how = f"another run with the same weights; that of id {init['run_id']} was not found" if another else ""
            return found, f"{how or 'found by the checksum of the weights'}{describe_fit(found, init)}"
        return self.find_at_path(init)

    def find_by_id(self, init: dict[str, Any]) -> list[RunFacts]:
        """Return the runs with the recorded id; copies of a run have the same one."""
        run_id = init.get("run_id")
        at_path, _ = self.find_at_path(init)
        runs = [*([at_path] if at_path else []), *self.runs]
        return [run for run in runs if run_id and run.id == run_id]

    def find_by_checksum(self, init: dict[str, Any]) -> list[RunFacts]:
        checksum = init.get("sha256")
        if not checksum:
            return []
        found = self.by_checksum.get(checksum) or self.find_final(checksum, init.get("bytes"))
        return [run for run in found if check_weights(run, init) != "changed"]

    def find_at_path(self, init: dict[str, Any]) -> tuple[RunFacts | None, str]:
        """Return the run at the recorded path and how it was found.

        Return None and the reason if it is another run or has no step.
        """
        if not init.get("run"):
            return None, "it lies in no run"
        try:
            found = open_run(Path(str(init["run"])))
        except (BadRun, BadValue, OSError):
            return None, f"the run at {init['run']} is not there any more, or cannot be read"
        if found.id and init.get("run_id") and found.id != init["run_id"]:
            return None, f"at {init['run']} there is another run now"
        if not has_begun(found):
            return None, f"the run at {init['run']} has no step, so that the weights are not from it"
        note = describe_fit(found, init)
        return found, f"found by its path alone: whether it is the same run was not recorded{note}"

    @property
    def by_checksum(self) -> dict[str, list[RunFacts]]:
        if self._by_checksum is None:
            self._by_checksum = {}
            for run in self.runs:
                for checksum in set(list_checksums(run)):
                    self._by_checksum.setdefault(checksum, []).append(run)
        return self._by_checksum

    def find_final(self, checksum: str, size: Any) -> list[RunFacts]:
        """Return the runs whose final weights have this checksum; files of another size are not read."""
        files = [(run, Path(run.path) / name) for run in self.runs for name in WEIGHTS]
        return [run for run, file in files if has_checksum(file, checksum, size)]


def has_begun(run: RunFacts) -> bool:
    return run.state != "never begun"


def choose_fitting(runs: list[RunFacts], init: dict[str, Any]) -> RunFacts | None:
    """Return the run with the best verdict of `check_weights`; None of no runs."""
    return min(runs, key=lambda run: (ORDER.index(check_weights(run, init)), has_other_final(run, init)), default=None)


def describe_fit(run: RunFacts, init: dict[str, Any]) -> str:
    """Return the end of a run's note about its weights; empty where they fit or no checksum was recorded."""
    verdict = check_weights(run, init)
    if verdict == "same" and has_other_final(run, init):
        return "; the checkpoint fits, but its final weights have another checksum than this last step"
    return NOTES[verdict]


def has_other_final(run: RunFacts, init: dict[str, Any]) -> bool:
    """Return True if the weights are of the run's last step, but its file of final weights has another checksum."""
    final = Path(run.path) / Path(str(init.get("file"))).name
    wanted = init.get("sha256")
    if not wanted or init.get("step") != run.steps or not final.is_file():
        return False
    return not has_checksum(final, wanted, init.get("bytes"))


def check_weights(run: RunFacts, init: dict[str, Any]) -> Verdict:
    """Return whether the recorded weights are still in a run; the files are hashed, their manifests are not trusted."""
    wanted, size = init.get("sha256"), init.get("bytes")
    if not wanted:
        return "unrecorded"
    recorded = locate_file(run, init)
    files = dict.fromkeys([*([recorded] if recorded else []), *list_files(run, wanted)])
    final = [Path(run.path) / name for name in WEIGHTS]
    if any(has_checksum(file, wanted, size) for file in dict.fromkeys([*files, *final])):
        return "same"
    return "changed" if any(file.exists() for file in files) else "missing"


def locate_file(run: RunFacts, init: dict[str, Any]) -> Path | None:
    """Return the path of the recorded file in a run that may have been moved.

    Return None if it was not recorded inside a run.
    """
    try:
        return Path(run.path) / Path(str(init.get("file"))).relative_to(Path(str(init.get("run"))).absolute())
    except ValueError:
        return None


def list_files(run: RunFacts, checksum: str) -> list[Path]:
    """Return the weight files in a run's checkpoints that have this checksum by their manifests."""
    folders = step_folders(Path(run.path) / "checkpoints").values()
    return [folder / name for folder in folders for name in WEIGHTS if read_checksums(folder).get(name) == checksum]


def has_checksum(file: Path, checksum: str, size: Any) -> bool:
    """Return True if a file has this checksum; one of another size is not read."""
    return file.is_file() and (size is None or file.stat().st_size == size) and hash_file(file) == checksum


def list_checksums(run: RunFacts) -> Iterator[str]:
    """Yield the checksums of the weights in a run's checkpoints, as their manifests have them."""
    for folder in step_folders(Path(run.path) / "checkpoints").values():
        yield from read_checksums(folder).values()


def read_checksums(folder: Path) -> dict[str, str]:
    """Return the checksums of the weights of one checkpoint; none where its manifest cannot be read."""
    try:
        files = read_manifest(folder)["files"]
    except BadRun:
        return {}
    return {name: files[name]["sha256"] for name in WEIGHTS if name in files}


def hash_file(file: Path) -> str | None:
    """Return the SHA-256 of a file; None if it cannot be read."""
    digest = hashlib.sha256()
    try:
        with file.open("rb") as opened:
            while block := opened.read(1 << 20):
                digest.update(block)
    except OSError:
        return None
    return digest.hexdigest()


def is_same_place(path: str, recorded: Any) -> bool:
    return recorded is not None and Path(path).absolute() == Path(str(recorded)).absolute()


def trace_lineage(run: RunFacts, others: Iterable[RunFacts]) -> Node:
    """Return the graph of a run's origins, as far as they were recorded and can be found among `others`."""
    return describe_run(run, Ancestors(list(others)), seen=())


def describe_run(run: RunFacts, ancestors: Ancestors, seen: tuple[str, ...]) -> Node:
    node = Node("run", run.path, describe_result(run))
    key = run.id or str(Path(run.path).absolute())
    if key in seen:
        return Node("missing", run.path, "named above already: the records form a circle")
    if len(seen) > MAX_GENERATIONS:
        return Node("missing", run.path, f"not followed further: {MAX_GENERATIONS} generations are shown above")
    if weights := describe_weights(run, ancestors, (*seen, key)):
        node.parents.append(weights)
    node.parents.append(describe_data(run))
    return node


def describe_result(run: RunFacts) -> str:
    parts = [run.recipe, run.state, f"{run.steps:,} steps"]
    if run.top1 is not None:
        parts.append(f"top-1 {write_percent(run.top1)} %")
    if run.fields.get("ema"):
        parts.append(f"averages its weights (ema, decay {run.fields.get('ema.decay', '?')})")
    return ", ".join(parts)


def describe_weights(run: RunFacts, ancestors: Ancestors, seen: tuple[str, ...]) -> Node | None:
    """Return the node of the file that gave a run its first weights; None where they were drawn from the seed."""
    source = run.fields.get("init.source")
    if not source and not run.init:
        return None
    if run.init is None:
        parent, how = ancestors.find_at_path({"run": source})
        node = Node("weights", f"weights {source}", "checksum not recorded")
    else:
        parent, how = ancestors.find(run.init)
        node = Node("weights", f"weights {run.init.get('source')}", describe_file(run.init))
    if parent is None:
        node.parents.append(Node("missing", "not found", how))
    else:
        origin = describe_run(parent, ancestors, seen)
        origin.note = f"{origin.note}; {how}"
        node.parents.append(origin)
    return node


def describe_file(init: dict[str, Any]) -> str:
    file = Path(str(init.get("file")))
    parts = [f"checkpoints/{file.parent.name}/{file.name}" if file.parent.parent.name == "checkpoints" else file.name]
    if file.name == "ema.safetensors":
        parts.append("averaged weights")
    if init.get("step") is not None:
        parts.append(f"after step {init['step']:,}")
    checksum = init.get("sha256")
    parts.append(f"sha256 {checksum[:12]}" if checksum else "no checksum recorded")
    return ", ".join(parts)


def describe_data(run: RunFacts) -> Node:
    location = run.data_path or f"{run.data} (built in)"
    if run.fingerprint is None:
        return Node("data", f"data {location}", "fingerprint not recorded")
    note = f"fingerprint {run.fingerprint[:12]} ({run.fingerprint_basis})"
    node = Node("data", f"data {location}", note)
    if run.build:
        node.parents.append(Node("data", "built by `viaduct data build`", describe_build(run.build)))
    return node


def describe_build(build: dict[str, Any]) -> str:
    source, options = build.get("source") or {}, build.get("options") or {}
    counts = [
        f"{source[key]:,} {noun}"
        for key, noun in (("pictures", "images"), ("classes", "classes"), ("bytes", "bytes"))
        if isinstance(source.get(key), int)
    ]
    return ", ".join([*counts, *(f"{name} {value}" for name, value in options.items())])


def render_tree(node: Node, prefix: str = "") -> str:
    """Return a node and its origins as text."""
    lines = [escape_controls(node.text)]
    for position, parent in enumerate(node.parents):
        last = position == len(node.parents) - 1
        branch, below = ("└─ ", "   ") if last else ("├─ ", "│  ")
        lines.append(prefix + branch + render_tree(parent, prefix + below))
    return "\n".join(lines)


def to_record(node: Node) -> dict[str, Any]:
    return {"kind": node.kind, "label": node.label, "note": node.note, "from": [to_record(p) for p in node.parents]}
