"""Job of a profiled script for its processes: a file, whose path is in their environment.

RECORD/job.json            the job
RECORD/PID/steps.jsonl     a line for each step as it ends, and for the facts of the network
RECORD/PID/finished        the whole profile, when the process has come to its end
RECORD/PID/ended.json      how the script ended, of the process that ran it
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from viaduct.profiling.collector import Plan

VARIABLE = "VIADUCT_PROFILE_JOB"
PYTHON = "VIADUCT_PROFILE_PYTHON"
FILE = "job.json"
STEPS, FINISHED, ENDED = "steps.jsonl", "finished", "ended.json"


@dataclass(frozen=True)
class ScriptJob:
    """A script that is profiled, and how."""

    target: str
    arguments: tuple[str, ...]
    is_module: bool
    record: str
    script_folder: str
    skip: int
    timed: int
    recorded: int
    device: str = "auto"

    @property
    def plan(self) -> Plan:
        return Plan(self.skip, self.timed, self.recorded)

    def save(self) -> Path:
        path = Path(self.record) / FILE
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")
        return path


def load_job() -> ScriptJob | None:
    """Return the job of this process; None where it belongs to none."""
    path = os.environ.get(VARIABLE)
    if not path:
        return None
    fields = json.loads(Path(path).read_text(encoding="utf-8"))
    return ScriptJob(**{**fields, "arguments": tuple(fields["arguments"])})
