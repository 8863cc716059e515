"""The commands that bring the migrated copy to the machine with the card, run it there and compare its numbers."""

from __future__ import annotations

import shlex
from pathlib import Path

from viaduct.carrying.request import Request
from viaduct.carrying.sides import Sides
from viaduct.rehearsal.plan import StageName
from viaduct.scripts.notebook_runs import is_notebook


def list_commands(request: Request, sides: Sides, stage: StageName) -> list[tuple[str, str]]:
    """Return pairs of purpose and command. On the card's machine they are run in the folder above the migrated copy."""
    folder = sides.folder
    words = shlex.join(request.arguments)
    return [
        ("Bring it over", f"scp -r {shlex.quote(str(folder))} USER@MACHINE:"),
        ("Look at the machine", "viaduct devices --test"),
        ("One card", single_card_command(folder, sides.entry, words, request.module)),
        *multi_card_commands(request, sides, stage, words),
        *dump_commands(request, sides, stage, words),
    ]


def single_card_command(folder: Path, entry: str, words: str, module: str = "") -> str:
    """Return the command for one card."""
    start = find_start_script(folder, "run_1p.sh")
    name = folder.name
    if module:
        return f"cd {name} && python3 -m {module} {words}".strip()
    if is_notebook(entry):
        return f"cd {name} && jupyter nbconvert --to notebook --execute {shlex.quote(entry)}"
    return (
        f"cd {name} && bash {start} {words}" if start else f"cd {name} && python3 {shlex.quote(entry)} {words}"
    ).strip()


def multi_card_commands(request: Request, sides: Sides, stage: StageName, words: str) -> list[tuple[str, str]]:
    """Return the command for a machine with eight cards; nothing if the carry had one rank."""
    start, name = find_start_script(sides.folder, "run_8p.sh"), sides.folder.name
    if request.ranks < 2:
        return []
    if start:
        return [("All cards of a machine", f"cd {name} && bash {start} {words}".strip())]
    if stage == "torch":
        started = f"-m {request.module}" if request.module else shlex.quote(sides.entry)
        line = f"cd {name} && torchrun --nproc_per_node=8 {started} {words}"
        return [("All cards of a machine", line.strip())]
    line = f"cd {name} && viaduct launch --ranks 8 -- python3 {shlex.quote(sides.entry)} {words}"
    return [("All cards of a machine", line.strip())]


def dump_commands(request: Request, sides: Sides, stage: StageName, words: str) -> list[tuple[str, str]]:
    """Return the commands that dump both sides and compare them; nothing for a notebook."""
    given = f" -- {words}" if words else ""
    if is_notebook(sides.entry):
        return []
    module = f"-m {request.module}" if request.module else ""
    here = f"viaduct dump {module or shlex.quote(str(sides.root / sides.entry))} --steps 0 --out golden{given}"
    there = f"viaduct dump {module or shlex.quote(sides.entry)} --steps 0 --out card{given}"
    if stage == "tf1":
        source = shlex.quote(str(sides.root))
        there = (
            f"viaduct migrate {source} --to {request.to} --dump card --dump-step 0 --out dumping, then run that copy"
        )
    return [
        ("If its numbers are off: dump the original's, on this machine", here),
        ("dump the card's, on its machine", there),
        ("and compare both dumps", "viaduct compare card golden --explain --out drift"),
    ]


def find_start_script(folder: Path, name: str) -> str:
    """Return the path of a generated start script; empty if there is none."""
    found = sorted(folder.glob(f"*scripts/{name}"))
    return str(found[0].relative_to(folder)) if found else ""
