"""The job of profiling a script, and the files of the script's processes.

RECORD/job.json            the job; its path is in the environment of the script's processes
RECORD/PID/steps.jsonl     of each process that trains: a line for each step as it ends, and lines with its facts
RECORD/PID/finished        its complete profile, pickled when it ends or has taken all steps
RECORD/PID/ended.json      of the process that ran the script: how the script ended
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from viaduct.json_records import decode_record, load_object
from viaduct.profiling.collector import Plan

JOB_VARIABLE = "VIADUCT_PROFILE_JOB"  # environment variable with the path of job.json
PYTHON_VARIABLE = "VIADUCT_PROFILE_PYTHON"
"""Environment variable with the path of the Python that runs the script; scripts/hook/sitecustomize.py reads it."""
JOB_FILE = "job.json"
STEPS_FILE, FINISHED_FILE, ENDED_FILE = "steps.jsonl", "finished", "ended.json"


@dataclass(frozen=True)
class ScriptJob:
    """A script to profile, and the number of its steps."""

    target: str  # path of the script, or name of the module
    arguments: tuple[str, ...]
    is_module: bool
    record_folder: str  # RECORD
    script_folder: str
    plan: Plan
    launcher: int = field(default_factory=os.getpid)  # id of the process that starts the script's processes

    def save(self) -> Path:
        path = Path(self.record_folder) / JOB_FILE
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")
        return path


def load_job() -> ScriptJob | None:
    """Return the job that this process takes part in; None if there is none."""
    path = os.environ.get(JOB_VARIABLE)
    if not path:
        return None
    job: ScriptJob = decode_record(ScriptJob, load_object(Path(path)))
    return job
