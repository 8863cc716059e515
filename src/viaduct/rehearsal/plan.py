"""Plan of a rehearsal, written into its record and read by all its processes.

The environment variable `VIADUCT_REHEARSAL` names the file. Processes that the script starts inherit it.
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
from viaduct.json_records import Damaged, decode_record, load_object

Platform = Literal["npu", "mlu", "original"]  # the card to stand in for; "original": the CPU as a GPU
FrameworkName = Literal["torch", "tf1"]
# How the script sees the user's files (`files.py`): through an overlay mount, through a mirror of copies and links, or
# directly (--here).
FileViewName = Literal["overlay", "mirror", "here"]
PLAN_VARIABLE = "VIADUCT_REHEARSAL"
PLAN_FILE = "plan.json"


@dataclass(frozen=True)
class Plan:
    """One rehearsal. Paths are absolute, because the script may change its current folder."""

    platform: Platform
    framework: FrameworkName
    script: str
    arguments: tuple[str, ...]
    record_folder: str  # all output of the rehearsal is written here
    visible_start_folder: str = ""  # the path at which the script sees its `start_folder`
    steps: int | None = None  # training steps after which the script is stopped; None or 0: it is not stopped
    batches: int | None = None  # limit on the batches of each pass over a DataLoader
    timeout: float | None = None  # seconds
    memory: int | None = None  # limit in bytes on a process and its descendants
    seed: int | None = None  # of rank 0; None: the script's random states are left alone
    ranks: int = 1
    script_starts_ranks: bool = False  # the script is started once, sees `ranks` cards and starts its ranks itself
    limit_modes: str = "error"  # modes of the card's limits, as `limits.parse_modes` reads them
    fake_data: bool = False  # make up missing datasets (`fake_data/`)
    observe: bool = True  # record losses, gradients and weights (`observe.py`)
    inspect: bool = False  # also record facts and outputs of modules (`inspection.py`)
    perturb: bool = False  # perturb the trained weights by about one unit in the last place before the first step
    step_at: str = ""  # where a step ends, if not at an update (`step_at.StepEnd`)
    join_ranks: bool = False  # train the ranks of a one-device TensorFlow script together (`tf1_stage/joining.py`)
    # Set where the original and the migrated project are compared: the root of the source tree that this run executes,
    # and the roots of the source trees from which it must not import.
    source_tree: str = ""
    other_source_trees: tuple[str, ...] = ()
    start_folder: str = ""  # the user's folder that the script runs in: the command's, or that of a notebook
    replaced_source_tree: str = ""  # the original's root; at this path the script sees the files of `source_tree`
    file_view: FileViewName = "here"
    visible_project_root: str = ""  # the path at which the script sees its `project_root`
    module: str = ""  # name for `python -m`; `script` is its file
    language: str = "en"
    command: str = ""  # as the user gave it
    python: str = sys.executable

    @property
    def script_folder(self) -> str:
        return str(Path(self.script).parent)

    @property
    def executed_root(self) -> str:
        """Return the folder of the files that run: `source_tree`, or outside of a comparison the script's folder."""
        return self.source_tree or self.script_folder

    @property
    def project_root(self) -> str:
        """Return the project's folder as the user knows it: in a run of a migrated copy, the original's."""
        return self.replaced_source_tree or self.executed_root

    @property
    def mirror(self) -> str:
        """Return the folder below which a mirror reproduces the user's paths (`mirror.py`)."""
        return os.path.join(self.record_folder, "mirror")

    @property
    def main_file(self) -> str:
        """Return the file that is run: the script or, in a mirror outside of a comparison, its copy there."""
        if self.file_view == "mirror" and not self.source_tree:
            return os.path.join(self.visible_project_root, os.path.basename(self.script))
        return self.script

    @property
    def processes_to_start(self) -> int:
        """Return the number of processes that viaduct starts."""
        return 1 if self.script_starts_ranks else self.ranks

    def save(self) -> Path:
        """Write the plan into its record; return the file."""
        path = Path(self.record_folder) / PLAN_FILE
        path.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
        return path


def load_plan(path: str | Path) -> Plan:
    """Read a plan; raise BadRun if it cannot be read."""
    try:
        plan: Plan = decode_record(Plan, load_object(Path(path)))
    except (OSError, Damaged) as error:
        raise BadRun(f"the plan of the rehearsal cannot be read: {path}: {error}.") from None
    return plan


def current_plan() -> Plan | None:
    """Return the plan that VIADUCT_REHEARSAL names, of the rehearsal that this process is part of; else None."""
    path = os.environ.get(PLAN_VARIABLE)
    return load_plan(path) if path else None


def find_loaded_module(name: str) -> Any:
    """Return an imported module; None if it is not imported, or not completely: another thread may be importing it."""
    module = sys.modules.get(name)
    return None if getattr(getattr(module, "__spec__", None), "_initializing", False) else module


def current_rank() -> int:
    """Return this process's rank from torch.distributed if it is initialised, else from RANK or RANK_ID, else 0."""
    distributed = find_loaded_module("torch.distributed")
    with suppress(ValueError, RuntimeError):  # another thread has just left the process group
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return cast(int, distributed.get_rank())
    variable = os.environ.get("RANK") or os.environ.get("RANK_ID") or "0"
    return int(variable) if variable.isdigit() else 0
