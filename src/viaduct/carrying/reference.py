"""The reference: the original with only the intended changes of its numbers.

It is a copy to which only the rules that change numbers on purpose are applied, or the original with ranks that train
together, or both. It is run if the sides differ and the migration makes such a change. What still differs between the
reference and the migrated script is not intended.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from viaduct.carrying.output_folder import RUNS_FOLDER
from viaduct.carrying.request import Request
from viaduct.carrying.sides import Sides, find_project
from viaduct.migration.run import migrate_project
from viaduct.migration.writing import write_out

INTENDED_CHANGES = {  # rule -> description of its change
    "tf1.dataset_drop_remainder": "the last, smaller batch of each pass over the data is dropped"
}
JOINED_RANKS = (
    "all ranks begin with rank 0's variables, and gradients are averaged, while the original is for one device"
)


def find_changing_rules(sides: Sides) -> dict[str, str]:
    """Return the rules that changed this project and are known to change numbers, with descriptions."""
    if sides.migration is None:  # the user migrated by hand, without rules
        return {}
    used = {finding.rule for finding in sides.migration.findings if finding.status == "changed"}
    return {rule: description for rule, description in INTENDED_CHANGES.items() if rule in used}


def write_reference(request: Request, sides: Sides, rules: tuple[str, ...]) -> Path:
    """Write a copy of the original with only these rules applied; return its script."""
    path, entry = find_project(request)
    options = replace(request.options, entry=entry if path.is_dir() else "", only=rules, skip=())
    folder = request.out / RUNS_FOLDER / "reference_source"
    folder.parent.mkdir(parents=True, exist_ok=True)
    write_out(migrate_project(path, options), folder, {}, link_data=True)
    return (folder / sides.entry).resolve()
