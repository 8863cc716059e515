"""Plans of rehearsals in a test's folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from viaduct.rehearsal.plan import Plan


def make_plan(folder: Path, **fields: Any) -> Plan:
    """Return the plan of folder/project/train.py on an NPU, with its record in folder/record, and create all three."""
    project, record = folder / "project", folder / "record"
    for path in (project, record):
        path.mkdir(exist_ok=True)
    (project / "train.py").touch()
    plan = Plan("npu", "torch", str(project / "train.py"), (), str(record), str(project), start_folder=str(project))
    return replace(plan, **fields)
