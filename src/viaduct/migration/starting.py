"""The start scripts that go with a migrated project: environment, one device, eight devices, a rank table to adapt."""

from __future__ import annotations

from viaduct.migration.run import Outcome


def start_scripts(outcome: Outcome) -> dict[str, str]:
    """Beside a project in which something was migrated; in a folder that has no such files yet."""
    if not outcome.changed or outcome.options.to == "any":
        return {}
    from viaduct.cluster.tf1_scripts import make  # rank tables and all: only where they are written

    files = make(outcome.options.to, outcome.entry)
    there = {*outcome.walk.others, *outcome.walk.scripts, *outcome.walk.links, *outcome.walk.folders}
    taken = any(f"scripts/{name}" in there for name in files) or "scripts" in {
        *outcome.walk.others,
        *outcome.walk.links,
    }
    folder = f"{outcome.options.to}_scripts" if taken else "scripts"
    return {f"{folder}/{name}": text for name, text in files.items() if f"{folder}/{name}" not in there}
