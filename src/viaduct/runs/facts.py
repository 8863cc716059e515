"""Facts of one run: a row of the table, and the fields that --filter and --sort read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["running", "finished", "interrupted", "pruned", "crashed", "never begun", "unknown"]


@dataclass
class RunFacts:
    """Facts from the files of a run; None: the files do not state it."""

    path: str
    name: str
    recipe: str
    fields: dict[str, Any]
    """The recipe's fields by their paths: `optimizer.lr`."""
    data: str = ""
    data_path: str | None = None
    fingerprint: str | None = None
    fingerprint_basis: str | None = None
    build: dict[str, Any] | None = None
    images: int | None = None
    commit: str | None = None
    source: str | None = None
    modified_files: int | None = None
    version: str | None = None
    device: str | None = None
    machine: dict[str, Any] | None = None
    ranks: int | None = None
    host: str | None = None
    pid: int | None = None
    began: float | None = None
    changed: float | None = None
    sessions: int | None = None
    id: str | None = None
    init: dict[str, Any] | None = None
    has_provenance: bool = False
    command: str | None = None
    precision: str | None = None
    parameters: int | None = None
    steps: int = 0
    steps_total: int | None = None
    epoch: float | None = None
    loss: float | None = None
    top1: float | None = None
    best_top1: float | None = None
    best_step: int | None = None
    images_per_s: float | None = None
    damaged_lines: int = 0
    state: str = "unknown"
    reason: str = ""
    """Why a run is in this state, where that is known."""
    ending: dict[str, Any] | None = field(default=None, repr=False)
    is_complete: bool = False
    """summary.json is there and covers all steps that the recipe asks for."""
    newest_checkpoint: int | None = None
    lost_step: int | None = None
    damage: list[str] = field(default_factory=list)
    """What is missing or damaged in the files of a run that is listed nevertheless."""

    @property
    def seed(self) -> Any:
        return self.fields.get("seed")

    @property
    def code(self) -> str | None:
        """The commit, with a plus sign where files were modified; viaduct's version where no commit is recorded."""
        if self.commit is None:
            return self.version
        return f"{self.commit}+" if self.modified_files else self.commit

    @property
    def short_device(self) -> str | None:
        """The machine's description up to the first comma, and the number of ranks if several: `NVIDIA H200 x2`."""
        if self.device is None:
            return None
        words = self.device.split(",")[0]
        return f"{words} x{self.ranks}" if self.ranks and self.ranks > 1 else words


def percent(value: float | None) -> float | None:
    """Return a share in percent, without the last bits that the product adds: 0.14 is 14, not 14.000000000000002."""
    return None if value is None else round(100 * value, 9)


# Fields of --sort, --filter and exports in addition to those of the recipe. `top1` and `best` are the same.
FIELDS: Mapping[str, Callable[[RunFacts], Any]] = {
    "name": lambda run: run.name,
    "recipe": lambda run: run.recipe,
    "data": lambda run: run.data,
    "code": lambda run: run.code,
    "commit": lambda run: run.commit,
    "version": lambda run: run.version,
    "device": lambda run: run.device,
    "host": lambda run: run.host,
    "ranks": lambda run: run.ranks,
    "steps": lambda run: run.steps,
    "steps_total": lambda run: run.steps_total,
    "epoch": lambda run: run.epoch,
    "loss": lambda run: run.loss,
    "top1": lambda run: percent(run.best_top1),
    "best": lambda run: percent(run.best_top1),
    "last": lambda run: percent(run.top1),
    "images_per_s": lambda run: run.images_per_s,
    "state": lambda run: run.state,
    "began": lambda run: run.began,
    "changed": lambda run: run.changed,
    "parameters": lambda run: run.parameters,
    "fingerprint": lambda run: run.fingerprint,
}
FIELD_NAMES = {entry.name for entry in dataclasses.fields(RunFacts)}


def to_entry(run: RunFacts) -> dict[str, Any]:
    return {name: getattr(run, name) for name in FIELD_NAMES}


def read_field(run: RunFacts, name: str) -> Any:
    """Return a field of a run: one of FIELDS, or of its recipe; None where this run has none of that name."""
    if name in FIELDS:
        return FIELDS[name](run)
    return run.fields.get(name)
