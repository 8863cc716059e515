"""The exact commands for the machine that has the card."""

from __future__ import annotations

import shlex
from pathlib import Path

from viaduct.carrying.asked import Asked
from viaduct.carrying.migrated import Sides
from viaduct.rehearsal.plan import StageName
from viaduct.scripts.notebook_runs import is_notebook


def commands(asked: Asked, sides: Sides, stage: StageName) -> list[tuple[str, str]]:
    """(what it is for, the command): given in the folder that holds the migrated copy's parent."""
    folder = sides.folder
    words = shlex.join(asked.arguments)
    return [
        ("Bring it over", f"scp -r {shlex.quote(str(folder))} USER@MACHINE:"),
        ("Look at the machine", "viaduct devices --test"),
        ("One card", one_card(folder, sides.entry, words, asked.module)),
        *several(asked, sides, stage, words),
        *dumps(asked, sides, stage, words),
    ]


def one_card(folder: Path, entry: str, words: str, module: str = "") -> str:
    start = script_of(folder, "run_1p.sh")
    name = folder.name
    if module:
        return f"cd {name} && python3 -m {module} {words}".strip()
    if is_notebook(entry):
        return f"cd {name} && jupyter nbconvert --to notebook --execute {shlex.quote(entry)}"
    return (
        f"cd {name} && bash {start} {words}" if start else f"cd {name} && python3 {shlex.quote(entry)} {words}"
    ).strip()


def several(asked: Asked, sides: Sides, stage: StageName, words: str) -> list[tuple[str, str]]:
    start, name = script_of(sides.folder, "run_8p.sh"), sides.folder.name
    if asked.ranks < 2:
        return []
    if start:
        return [("All cards of a machine", f"cd {name} && bash {start} {words}".strip())]
    if stage == "torch":
        started = f"-m {asked.module}" if asked.module else shlex.quote(sides.entry)
        line = f"cd {name} && torchrun --nproc_per_node=8 {started} {words}"
        return [("All cards of a machine", line.strip())]
    line = f"cd {name} && viaduct launch --ranks 8 -- python3 {shlex.quote(sides.entry)} {words}"
    return [("All cards of a machine", line.strip())]


def dumps(asked: Asked, sides: Sides, stage: StageName, words: str) -> list[tuple[str, str]]:
    """Here the truth, there the card's: the first operator that parts says why."""
    given = f" -- {words}" if words else ""
    if is_notebook(sides.entry):
        return []
    module = f"-m {asked.module}" if asked.module else ""
    here = f"viaduct dump {module or shlex.quote(str(sides.root / sides.entry))} --steps 0 --out golden{given}"
    there = f"viaduct dump {module or shlex.quote(sides.entry)} --steps 0 --out card{given}"
    if stage == "tf1":
        source = shlex.quote(str(sides.root))
        there = f"viaduct migrate {source} --to {asked.to} --dump card --dump-step 0 --out dumping, then run that copy"
    return [
        ("If its numbers are off: the truth, here", here),
        ("the card's, there", there),
        ("and both side by side", "viaduct compare card golden --explain --out drift"),
    ]


def script_of(folder: Path, name: str) -> str:
    found = sorted(folder.glob(f"*scripts/{name}"))
    return str(found[0].relative_to(folder)) if found else ""
