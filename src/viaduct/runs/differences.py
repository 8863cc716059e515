"""Differences between two runs: recipe and its files, data, code, machine, weights; then losses and results.

All but losses and results are aspects, compared by what the runs recorded, and the final weights by their files. Data,
code and machine are those of each run's last session. An aspect that was not compared is listed with the reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from viaduct.runs.facts import RunFacts
from viaduct.runs.importance import rank_importance
from viaduct.runs.lineage import WEIGHTS, hash_file
from viaduct.runs.losses import LossDifference, compare_losses, describe_losses
from viaduct.runs.seeds import MIN_SEEDS, SeedNoise, measure_seed_noise
from viaduct.runs.table import format_percent
from viaduct.terminal import align_columns

MISSING = "(no such field)"  # shown for a field that only the other recipe has
MAX_WEIGHTS_BYTES = 2 << 30  # larger files are not hashed
MACHINE_FIELDS = ("description", "device", "cpus", "threads", "system", "python")


@dataclass(frozen=True)
class Aspect:
    """Comparison of one aspect of two runs."""

    name: str
    same: bool | None  # None: not compared, because a run did not record it or its files are missing or too large
    text: str
    changes: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # name -> different values in A and B


@dataclass(frozen=True)
class RunDifference:
    """Differences between two runs, by aspect."""

    first: RunFacts
    second: RunFacts
    aspects: list[Aspect]  # that of the recipe comes first
    losses: LossDifference | str  # str: the reason why they were not compared
    noise: SeedNoise | None  # variation of the last top-1 between seeds; None: it cannot be measured

    @property
    def differs(self) -> bool:
        """True if any difference was found; what was not compared does not count."""
        losses_differ = isinstance(self.losses, LossDifference) and not self.losses.is_equal
        results = ((self.first.top1, self.second.top1), (self.first.best_top1, self.second.best_top1))
        results_differ = any(left != right for left, right in results if None not in (left, right))
        return losses_differ or results_differ or any(aspect.same is False for aspect in self.aspects)

    def render_lines(self) -> list[str]:
        """Return the difference as lines of text, beginning with the different values."""
        return [
            *([] if self.differs else ["No difference was found in what was compared."]),
            *self._list_changes(),
            *self._describe_runs(),
            *describe_losses(self.losses),
            *self._describe_results(),
            *(f"{aspect.text}." for aspect in self.aspects if aspect.same is not True),
        ]

    def _list_changes(self) -> list[str]:
        rows = [
            [name, *map(format_value, values)] for aspect in self.aspects for name, values in aspect.changes.items()
        ]
        return align_columns(rows, text_columns=range(3)) if rows else []

    def _describe_runs(self) -> list[str]:
        same = [self._name_same(aspect) for aspect in self.aspects if aspect.same]
        lines = [f"A is {self.first.name} ({self.first.state}), B is {self.second.name} ({self.second.state})."]
        sessions = [
            f"{name} has {run.sessions} recorded sessions"
            for name, run in (("A", self.first), ("B", self.second))
            if run.sessions is not None and run.sessions > 1
        ]
        if sessions:
            lines.append(f"{' and '.join(sessions)}: data, code and machine are those of the last session.")
        return [*lines, f"Same {', '.join(same)}."] if same else lines

    def _name_same(self, aspect: Aspect) -> str:
        """Return an aspect's name; for the data also what their fingerprint covers, which may be a part of them."""
        return f"data (by {self.first.fingerprint_basis or 'fingerprint'})" if aspect.name == "data" else aspect.name

    def _describe_results(self) -> list[str]:
        """Compare the last top-1; if the runs do not differ in it, also the best top-1."""
        first, second = self.first, self.second
        if first.top1 is None or second.top1 is None:
            return [f"Results: no evaluation in {name_missing((first.top1, second.top1))}."]
        last = f"Last top-1: {format_percent(first.top1)} % and {format_percent(second.top1)} %"
        difference = 100 * (second.top1 - first.top1)
        if difference == 0:
            best = f"Best top-1: {format_percent(first.best_top1)} % and {format_percent(second.best_top1)} %."
            return [f"{last}, equal.", best] if first.best_top1 != second.best_top1 else [f"{last}, equal."]
        noise = (
            f"seed noise is not known: in the runs' folders, {MIN_SEEDS} finished seeds were found of neither recipe"
        )
        if self.noise:
            noise = self.noise.judge(difference)
        return [f"{last}, B {difference:+.2f} points; {noise}."]

    def build_record(self) -> dict[str, Any]:
        """Return the difference as JSON data."""
        losses = self.losses if isinstance(self.losses, str) else dataclasses.asdict(self.losses)
        return {
            "a": self.first.path,
            "b": self.second.path,
            "differs": self.differs,
            "aspects": [dataclasses.asdict(aspect) for aspect in self.aspects],
            "losses": losses,
            "last_top1": [self.first.top1, self.second.top1],
            "seed_noise": dataclasses.asdict(self.noise) if self.noise else None,
        }


def diff_runs(first: RunFacts, second: RunFacts) -> RunDifference:
    """Compare two runs."""
    user_files = [compare_user_files] if first.user_files or second.user_files else []
    comparisons = [compare_data, compare_code, compare_machine, compare_init, compare_final_weights]
    return RunDifference(
        first,
        second,
        [compare(first, second) for compare in [compare_recipes, *user_files, *comparisons]],
        compare_losses(Path(first.path), Path(second.path)),
        measure_seed_noise(first, second),
    )


def compare_recipes(first: RunFacts, second: RunFacts) -> Aspect:
    """Compare the names and all fields of the recipes."""
    fields = sorted({**first.fields, **second.fields}, key=rank_importance)
    pairs = {name: (first.fields.get(name, MISSING), second.fields.get(name, MISSING)) for name in fields}
    pairs = {"recipe": (first.recipe, second.recipe), **pairs}
    changes = {name: (left, right) for name, (left, right) in pairs.items() if left != right}
    count = "1 field of the recipe differs" if len(changes) == 1 else f"{len(changes)} fields of the recipe differ"
    return Aspect("recipe", not changes, count if changes else "Recipe: every field is the same", changes)


def compare_user_files(first: RunFacts, second: RunFacts) -> Aspect:
    """Compare the checksums of the files of users' recipes and networks, whose functions the fields only name."""
    names = {**first.user_files, **second.user_files}  # ordered, unlike a set
    pairs = {name: (first.user_files.get(name), second.user_files.get(name)) for name in names}
    changes: dict[str, tuple[Any, Any]] = {
        name: (f"sha256 {left[:12]}", f"sha256 {right[:12]}")
        for name, (left, right) in pairs.items()
        if left is not None and right is not None and left != right
    }
    if changes:
        return Aspect("files of the recipe", False, "Files of the recipe differ", changes)
    for name, pair in pairs.items():
        if None in pair:
            missing = name_missing(pair)
            return Aspect("files of the recipe", None, f"Files of the recipe: no checksum of {name} in {missing}")
    return Aspect("files of the recipe", True, "Files of the recipe: same checksums")


def compare_data(first: RunFacts, second: RunFacts) -> Aspect:
    """Compare fingerprints of the same basis; without them, another number of images shows that the data differ."""
    pair = (first.fingerprint, second.fingerprint)
    bases = (first.fingerprint_basis, second.fingerprint_basis)
    if None not in pair and bases[0] == bases[1]:
        if pair[0] == pair[1]:
            return Aspect("data", True, f"Data: same fingerprint ({bases[0]})")
        changes: dict[str, tuple[Any, Any]] = {"data.fingerprint": pair}
        if first.data_path != second.data_path:
            changes["data.path"] = (first.data_path, second.data_path)
        return Aspect("data", False, f"The data differ (fingerprints of {bases[0]})", changes)
    if first.images != second.images and None not in (first.images, second.images):
        return Aspect("data", False, "The data differ", {"data.images": (first.images, second.images)})
    if None in pair:
        return Aspect("data", None, f"Data: fingerprint not recorded in {name_missing(pair)}")
    return Aspect("data", None, f"Data: not compared: fingerprint of {bases[0]} in A, of {bases[1]} in B")


def compare_code(first: RunFacts, second: RunFacts) -> Aspect:
    """Compare the digests of the source code; without them, different commits show that the code differs."""
    digests, commits = (first.source, second.source), (first.code, second.code)
    if None not in digests:
        if digests[0] == digests[1]:
            return Aspect("code", True, "Code: same source")
        changed = commits if commits[0] != commits[1] else digests
        return Aspect("code", False, "The source of viaduct differs", {"code": changed})
    if None not in commits and commits[0] != commits[1]:
        return Aspect("code", False, "The code differs", {"code": commits})
    return Aspect("code", None, f"Code: digest of the source not recorded in {name_missing(digests)}")


def compare_machine(first: RunFacts, second: RunFacts) -> Aspect:
    """Compare hardware, versions and the number of ranks; the host's name is ignored.

    A version that only one run has is a difference: the other machine lacks that package. Any other value that only one
    run recorded is not compared.
    """
    if first.machine is None or second.machine is None:
        missing = name_missing((first.machine, second.machine))
        return Aspect("machine", None, f"Machine: not recorded in {missing}")
    left, right = describe_machine(first), describe_machine(second)
    expected = ("ranks", *(f"machine.{name}" for name in MACHINE_FIELDS))  # the other names are those of versions
    changes: dict[str, tuple[Any, Any]] = {}
    unrecorded = ""
    for name in {**left, **right}:  # ordered, unlike a set
        pair = (left.get(name), right.get(name))
        if None in pair and pair != (None, None) and name in expected:
            unrecorded = unrecorded or f"{name} not recorded in {name_missing(pair)}"
        elif pair[0] != pair[1]:
            changes[name] = pair
    if changes:
        return Aspect("machine", False, "The machines differ", changes)
    if unrecorded:
        return Aspect("machine", None, f"Machine: {unrecorded}")
    return Aspect("machine", True, "Machine: the same")


def describe_machine(run: RunFacts) -> dict[str, Any]:
    """Return the recorded hardware, software versions and number of ranks of a run."""
    machine = run.machine or {}
    versions = machine.get("versions")
    values = {name: machine.get(name) for name in MACHINE_FIELDS} | (versions if isinstance(versions, dict) else {})
    return {f"machine.{name}": value for name, value in values.items()} | {"ranks": run.ranks}


def compare_init(first: RunFacts, second: RunFacts) -> Aspect:
    """Compare the files of first weights by their recorded checksums; of weights drawn from a seed only the origin."""
    if all(run.fields.get("init.source") == "" for run in (first, second)):  # drawn, perhaps from different seeds
        return Aspect("origin of the first weights (drawn)", True, "First weights: drawn in both")
    left, right = read_init(first), read_init(second)
    if left is None or right is None:
        return Aspect("first weights", None, f"First weights: not recorded in {name_missing((left, right))}")
    checksums = [left.get("sha256"), right.get("sha256")]
    if None in checksums:
        return Aspect("first weights", None, f"First weights: no checksum recorded in {name_missing(checksums)}")
    if checksums[0] == checksums[1]:
        return Aspect("first weights", True, "First weights: same checksum")
    changes = {"first weights": (left.get("source"), right.get("source"))}
    return Aspect("first weights", False, "The first weights differ", changes)


def read_init(run: RunFacts) -> dict[str, Any] | None:
    """Return the record of a run's first weights; None if the run was begun by a version of viaduct without it."""
    if run.fields.get("init.source") == "":
        return {"source": "drawn", "sha256": ""}
    return run.init


def compare_final_weights(first: RunFacts, second: RunFacts) -> Aspect:
    """Compare the files of final weights by their checksums, which are computed now."""
    changes: dict[str, tuple[Any, Any]] = {}
    obstacle = ""  # first reason why a file was not compared
    for name in WEIGHTS:
        files = [Path(run.path) / name for run in (first, second)]
        present = [file if file.is_file() else None for file in files]
        if None in present:
            if any(present) or name == WEIGHTS[0]:  # the averaged weights, WEIGHTS[1], may be missing in both
                obstacle = obstacle or f"not compared: no {name} in {name_missing(present)}"
            continue
        if max(file.stat().st_size for file in files) > MAX_WEIGHTS_BYTES:
            obstacle = obstacle or f"not compared: {name} is larger than 2 GiB"
            continue
        checksums = [hash_file(file) for file in files]
        if None in checksums:
            obstacle = obstacle or f"{name} cannot be read in {name_missing(checksums)}"
        elif checksums[0] != checksums[1]:
            changes[name] = (f"sha256 {str(checksums[0])[:12]}", f"sha256 {str(checksums[1])[:12]}")
    if changes:
        return Aspect("final weights", False, "The final weights differ", changes)
    if obstacle:
        return Aspect("final weights", None, f"Final weights: {obstacle}")
    return Aspect("final weights", True, "Final weights: same checksum")


def name_missing(values: Sequence[Any]) -> str:
    """Return `A`, `B` or `A and B`: the runs whose value is None."""
    return " and ".join(name for name, value in zip("AB", values, strict=True) if value is None)


def format_value(value: Any) -> str:
    return "–" if value is None else '""' if value == "" else str(value)
