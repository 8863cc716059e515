"""Facts of one run: a row of the table, and the fields that --filter and --sort read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["running", "finished", "interrupted", "pruned", "crashed", "never begun", "unknown"]


@dataclass
class RunFacts:
    """Facts from the files of a run; None: the files do not state it. Times are seconds since the epoch (Unix time)."""

    path: str
    name: str
    """Name in the table: the path relative to the only searched folder, else the path."""
    recipe: str
    fields: dict[str, Any]
    """The recipe's fields by their paths: `optimizer.lr`."""
    data: str = ""
    data_path: str | None = None
    fingerprint: str | None = None
    fingerprint_basis: str | None = None
    """What the fingerprint was computed from, in words."""
    build: dict[str, Any] | None = None
    """How `viaduct data build` made the data."""
    images: int | None = None
    """Number of training images."""
    commit: str | None = None
    source: str | None = None
    """Digest of viaduct's source code."""
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
    """How often training was started."""
    id: str | None = None
    init: dict[str, Any] | None = None
    """File of the first weights: source, file, sha256, bytes, step, and run and run_id if it belonged to a run."""
    has_provenance: bool = False
    """recipe.json records the sessions; runs of early versions do not."""
    command: str | None = None
    precision: str | None = None
    parameters: int | None = None
    steps: int = 0
    steps_total: int | None = None
    epoch: float | None = None
    loss: float | None = None
    top1: float | None = None
    """Of the last evaluation, from 0 to 1 as `best_top1`."""
    best_top1: float | None = None
    best_step: int | None = None
    images_per_s: float | None = None
    damaged_lines: int = 0
    state: str = "unknown"
    reason: str = ""
    """Why a run is in this state, where that is known."""
    ending: dict[str, Any] | None = field(default=None, repr=False)
    """Contents of ending.json."""
    is_complete: bool = False
    """summary.json is there and covers all steps that the recipe asks for."""
    newest_checkpoint: int | None = None
    """Step of the newest checkpoint; None for a complete run."""
    lost_step: int | None = None
    """First step whose loss was NaN or infinite."""
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
        description = self.device.split(",")[0]
        return f"{description} x{self.ranks}" if self.ranks and self.ranks > 1 else description


def percent(share: float | None) -> float | None:
    """Return a share in percent, without the last bits that the product adds: 0.14 is 14, not 14.000000000000002."""
    return None if share is None else round(100 * share, 9)


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


def read_field(run: RunFacts, name: str) -> Any:
    """Return a field of a run: one of FIELDS, or of its recipe; None where this run has none of that name."""
    if name in FIELDS:
        return FIELDS[name](run)
    return run.fields.get(name)
