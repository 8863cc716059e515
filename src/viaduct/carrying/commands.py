"""Commands for the user: copy the migrated project to the machine with the card, run it there, compare its numbers."""

from __future__ import annotations

import shlex
from pathlib import Path

from viaduct.carrying.request import Request
from viaduct.carrying.sides import Sides
from viaduct.rehearsal.plan import FrameworkName
from viaduct.scripts.notebook_runs import is_notebook


def list_commands(request: Request, sides: Sides, framework: FrameworkName) -> list[tuple[str, str]]:
    """Return pairs of purpose and command. On the card's machine they run in the folder above the migrated copy."""
    arguments = shlex.join(request.arguments)
    return [
        ("Bring it over", f"scp -r {shlex.quote(str(sides.migrated_root))} USER@MACHINE:"),
        ("Look at the machine", "viaduct devices --test"),
        ("One card", make_single_card_command(sides.migrated_root, sides.entry, arguments, request.module)),
        *list_multi_card_commands(request, sides, framework, arguments),
        *list_dump_commands(request, sides, framework, arguments),
    ]


def make_single_card_command(folder: Path, entry: str, arguments: str, module: str = "") -> str:
    change_folder = f"cd {shlex.quote(folder.name)}"
    if is_notebook(entry) and not module:
        return f"{change_folder} && jupyter nbconvert --to notebook --execute {shlex.quote(entry)}"
    command = f"python3 {shlex.quote(entry)}"
    if module:
        command = f"python3 -m {module}"
    elif start := find_start_script(folder, "run_1p.sh"):
        command = f"bash {start}"
    return f"{change_folder} && {command} {arguments}".strip()


def list_multi_card_commands(
    request: Request, sides: Sides, framework: FrameworkName, arguments: str
) -> list[tuple[str, str]]:
    """Return the command that runs the script on eight cards of a machine, if the carry had several ranks."""
    if request.ranks < 2:
        return []
    script = shlex.quote(sides.entry)
    if start := find_start_script(sides.migrated_root, "run_8p.sh"):
        command = f"bash {start}"
    elif framework == "torch":
        command = f"torchrun --nproc_per_node=8 {f'-m {request.module}' if request.module else script}"
    else:
        command = f"viaduct launch --ranks 8 -- python3 {script}"
    folder = shlex.quote(sides.migrated_root.name)
    return [("All cards of a machine", f"cd {folder} && {command} {arguments}".strip())]


def list_dump_commands(
    request: Request, sides: Sides, framework: FrameworkName, arguments: str
) -> list[tuple[str, str]]:
    """Return the commands that dump both sides and compare the dumps; none for a notebook."""
    if is_notebook(sides.entry):
        return []
    suffix = f" -- {arguments}" if arguments else ""
    original, migrated = (shlex.quote(path) for path in (str(sides.original_root / sides.entry), sides.entry))
    if request.module:
        original = migrated = f"-m {request.module}"
    dump_original = f"viaduct dump {original} --steps 0 --out golden{suffix}"
    dump_migrated = f"viaduct dump {migrated} --steps 0 --out card{suffix}"
    if framework == "tf1":
        source = shlex.quote(str(sides.original_root))
        options = f"--to {request.to} --dump card --dump-step 0 --out dumping"
        dump_migrated = f"viaduct migrate {source} {options}, then run that copy"
    return [
        ("If its numbers are off: dump the original's, on this machine", dump_original),
        ("dump the card's, on its machine", dump_migrated),
        ("and compare both dumps", "viaduct compare card golden --explain --out drift"),
    ]


def find_start_script(folder: Path, name: str) -> str:
    """Return the path of a generated start script, quoted for the shell; empty if there is none."""
    paths = sorted(folder.glob(f"*scripts/{name}"))
    return shlex.quote(str(paths[0].relative_to(folder))) if paths else ""
