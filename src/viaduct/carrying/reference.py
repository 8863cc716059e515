"""Changes of a migration that change numbers, and are meant to: they are made in the original too, and nothing else.

What then still differs was not meant.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from viaduct.carrying.asked import Asked
from viaduct.carrying.migrated import Sides, project_of
from viaduct.migration.run import migrate_project
from viaduct.migration.writing import write_out
from viaduct.rehearsal.files import settle
from viaduct.rehearsal.plan import Plan

MEANT = {"tf1.dataset_drop_remainder": "the last, smaller batch of each pass over the data is dropped"}

JOINED = "all ranks begin with rank 0's variables, and gradients are averaged; the original is for one device"


def rules_that_count(sides: Sides) -> dict[str, str]:
    """Those that changed something here, and what they change."""
    if sides.outcome is None:
        return {}
    used = {finding.rule for finding in sides.outcome.findings if finding.status == "changed"}
    return {rule: what for rule, what in MEANT.items() if rule in used}


def write(asked: Asked, sides: Sides, rules: tuple[str, ...]) -> Path:
    """A copy of the original with these rules alone; its script."""
    path, entry = project_of(asked)
    options = replace(asked.options, entry=entry if path.is_dir() else "", only=rules, skip=())
    folder = asked.out / "runs" / "reference_source"
    folder.parent.mkdir(parents=True, exist_ok=True)
    write_out(migrate_project(path, options), folder, {}, link_data=True)
    return (folder / sides.entry).resolve()


def renamed(plan: Plan, name: str) -> Plan:
    return settle(plan, Path(plan.record).parent / name)
