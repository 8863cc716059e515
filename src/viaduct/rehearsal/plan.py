"""Plan of a rehearsal, written into its record and read by all its processes.

`VIADUCT_REHEARSAL` names the file. It is inherited by whatever the script starts, which is how those processes know
that they are part of a rehearsal, and of which.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast

from viaduct.errors import BadRun

On = Literal["npu", "mlu", "original"]
StageName = Literal["torch", "tf1"]
ViewName = Literal["overlay", "mirror", "here"]
VARIABLE = "VIADUCT_REHEARSAL"
FILE = "plan.json"


@dataclass(frozen=True)
class Plan:
    """One rehearsal. Paths are absolute: the script may change its folder."""

    on: On
    stage: StageName
    script: str
    arguments: tuple[str, ...]
    record: str
    work: str = ""  # the folder that the script runs in
    steps: int | None = None  # so many training steps, then a clean stop; None: to the script's own end
    batches: int | None = None  # so many batches in each pass over a DataLoader
    timeout: float | None = None  # seconds
    memory: int | None = None  # bytes of one process and those that it started
    seed: int | None = None
    ranks: int = 1
    launches_itself: bool = False  # the script starts its ranks; it is run once, and sees as many cards
    limits: str = "error"
    fake_data: bool = False
    observe: bool = True
    look: bool = False  # more closely: what things were made with, and where; what each module gave
    shake: bool = False  # every weight by one unit in its last place, before the first step
    step_at: str = ""  # where a step ends, if not at an update (`step_at.Target`)
    joined: bool = False  # ranks of a script that was written for one device train together
    tree: str = ""  # the root of this side, where two are compared
    other_trees: tuple[str, ...] = ()  # of the sides that this one must not load from
    origin: str = ""  # the folder in which the command was given
    replaces: str = ""  # the tree in whose place this side's files stand
    view: ViewName = "here"  # how the script sees the user's files
    place: str = ""  # where the script sees `tree`
    module: str = ""  # as `python -m` is given it; `script` is its file
    language: str = "en"
    command: str = ""  # as the user gave it
    python: str = sys.executable

    @property
    def project(self) -> str:
        """Return the script's folder."""
        return str(Path(self.script).parent)

    @property
    def main(self) -> str:
        """The file that is run: in a mirror, where only one tree is rehearsed, the mirror's."""
        alone = self.view == "mirror" and not self.tree
        return os.path.join(self.place, os.path.basename(self.script)) if alone else self.script

    @property
    def processes(self) -> int:
        """Number of processes that are started from outside."""
        return 1 if self.launches_itself else self.ranks

    def save(self) -> Path:
        """Write the plan into its record."""
        path = Path(self.record) / FILE
        path.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
        return path


def load(path: str | Path) -> Plan:
    """Read a plan."""
    try:
        read = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadRun(f"the plan of the rehearsal cannot be read: {path}: {error}.") from None
    return Plan(**{**read, "arguments": tuple(read["arguments"]), "other_trees": tuple(read["other_trees"])})


def current() -> Plan | None:
    """The plan of the rehearsal that this process is part of."""
    path = os.environ.get(VARIABLE)
    return load(path) if path else None


def find_imported(name: str) -> Any:
    """Return a module that is completely imported; one that another thread is importing lacks names."""
    module = sys.modules.get(name)
    return None if getattr(getattr(module, "__spec__", None), "_initializing", False) else module


def rank() -> int:
    """Return this process's rank, as torch.distributed or else its variables know it. Any thread may ask."""
    group = find_imported("torch.distributed")
    with suppress(ValueError, RuntimeError):  # another thread has just left the process group
        if group is not None and group.is_available() and group.is_initialized():
            return cast(int, group.get_rank())
    said = os.environ.get("RANK") or os.environ.get("RANK_ID") or "0"
    return int(said) if said.isdigit() else 0
