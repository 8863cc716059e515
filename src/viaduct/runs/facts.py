"""Facts of one run: a row of the table of runs. --filter, --sort and the exports read its fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal

State = Literal["running", "finished", "interrupted", "pruned", "crashed", "never begun", "unknown"]


@dataclass
class RunFacts:
    """Facts from the files of a run. A fact that is not in the files is None. Times are Unix times in seconds."""

    path: str
    name: str  # name in the table: the path, relative to the folder if only one is searched
    recipe: str
    fields: dict[str, Any]  # values of the recipe's fields by their paths, such as `optimizer.lr`
    data: str = ""  # last component of the data's path, or the class of the recipe's data if it needs no path
    data_path: str | None = None
    fingerprint: str | None = None  # digest of the training and validation data
    fingerprint_basis: str | None = None  # inputs of the fingerprint, in words
    build: dict[str, Any] | None = None  # record that `viaduct data build` wrote beside the data
    images: int | None = None  # number of training images
    commit: str | None = None  # of viaduct
    source: str | None = None  # digest of viaduct's source code
    user_files: dict[str, str | None] = field(default_factory=dict)
    """SHA-256 of the files of a user's recipe and network, by name; None: not recorded. Empty for a built-in recipe."""
    modified_files: int | None = None  # number of viaduct's source files that differ from git's index
    version: str | None = None  # of viaduct
    device: str | None = None
    machine: dict[str, Any] | None = None
    ranks: int | None = None
    host: str | None = None
    pid: int | None = None  # of the last session (start of training), like commit, machine, ranks and host
    began: float | None = None
    changed: float | None = None  # last change of metrics.jsonl, or of recipe.json if there are no metrics
    sessions: int | None = None  # number of recorded starts of training; recipe.json keeps the first and the latest
    id: str | None = None  # drawn when the run began; copies of the run have the same
    init: dict[str, Any] | None = None
    """File of the first weights; lineage.py lists the keys."""
    has_provenance: bool = False  # True if recipe.json has a record of the sessions; early versions wrote none
    command: str | None = None
    precision: str | None = None
    parameters: int | None = None  # number of weights
    steps: int = 0  # number of steps that were trained, as far as they were logged or evaluated
    steps_total: int | None = None
    epoch: float | None = None
    loss: float | None = None  # of the last log line
    top1: float | None = None  # of the last evaluation; 1.0 is 100 %
    best_top1: float | None = None
    best_step: int | None = None
    images_per_s: float | None = None
    damaged_lines: int = 0
    state: State = "unknown"
    reason: str = ""  # reason of the state, if known
    ending: dict[str, Any] | None = field(default=None, repr=False)  # contents of ending.json
    is_complete: bool = False  # True if summary.json was written, for the length that the recipe has now
    newest_checkpoint: int | None = None  # step of the newest checkpoint; None for a complete run
    lost_step: int | None = None  # first step whose loss was NaN or infinite
    unreadable: list[str] = field(default_factory=list)  # which of summary.json, ending.json, metrics.jsonl are damaged
    damage: list[str] = field(default_factory=list)  # missing or damaged files of a run that is still listed

    @property
    def seed(self) -> Any:
        return self.fields.get("seed")

    @property
    def code(self) -> str | None:
        """Commit, with a plus sign if files were modified; viaduct's version if no commit is recorded."""
        if self.commit is None:
            return self.version
        return f"{self.commit}+" if self.modified_files else self.commit

    @property
    def short_device(self) -> str | None:
        """Description of the device up to its first comma, and the number of ranks if several: `NVIDIA H200 x2`."""
        if self.device is None:
            return None
        description = self.device.split(",")[0]
        return f"{description} x{self.ranks}" if self.ranks and self.ranks > 1 else description


def to_percent(fraction: float | None) -> float | None:
    """Convert a fraction to percent, rounded: 0.14 is 14, not 14.000000000000002."""
    return None if fraction is None else round(100 * fraction, 9)


# Fields that --sort, --filter and exports have in addition to those of the recipe. `top1` and `best` are both the best
# top-1; RunFacts.top1, the last one, is `last`.
FIELDS: Mapping[str, Callable[[RunFacts], Any]] = {
    **{name: attrgetter(name) for name in ("name", "recipe", "data", "code", "commit", "version", "device", "host")},
    **{name: attrgetter(name) for name in ("ranks", "steps", "steps_total", "epoch", "loss")},
    "top1": lambda run: to_percent(run.best_top1),
    "best": lambda run: to_percent(run.best_top1),
    "last": lambda run: to_percent(run.top1),
    **{name: attrgetter(name) for name in ("images_per_s", "state", "began", "changed", "parameters", "fingerprint")},
}


def read_field(run: RunFacts, name: str) -> Any:
    """Return a field of a run: one of FIELDS, or of its recipe; None if the run does not have it."""
    if name in FIELDS:
        return FIELDS[name](run)
    return run.fields.get(name)
