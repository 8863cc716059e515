"""viaduct rehearse"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Literal

import typer

from viaduct.errors import BadRun, BadValue
from viaduct.rehearsal import limits, project
from viaduct.rehearsal.own_launch import find_launch_line
from viaduct.rehearsal.plan import FrameworkName, Plan
from viaduct.rehearsal.stage import refuse_old_torch
from viaduct.rehearsal.step_at import find_step_end
from viaduct.rehearsal.summary import Summary, describe_summary
from viaduct.scripts.notebook_runs import is_notebook

SIZES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}

# Flags that `carry` has too.
Arguments = Annotated[
    list[str] | None, typer.Argument(help="After --: arguments of the script itself.", metavar="[-- ARGUMENTS]")
]
Ranks = Annotated[int, typer.Option(help="Ranks on this machine; the script sees as many cards.", min=1)]
OneLimit = Annotated[
    list[str] | None, typer.Option(help="Another mode for one limit, such as float64=warn.", metavar="NAME=MODE")
]
Memory = Annotated[
    str | None, typer.Option(help="Memory limit of each rank with its child processes, such as 8G.", metavar="SIZE")
]
FakeData = Annotated[
    bool, typer.Option("--fake-data", help="Generate records for missing files whose shapes the script declares.")
]
Framework = Annotated[
    FrameworkName | None, typer.Option(help="The framework that trains.", show_default="by its imports")
]
Launch = Annotated[
    Literal["auto", "self", "ranks"],
    typer.Option(help="With --ranks: what starts them. self: the script (mp.spawn); ranks: viaduct."),
]
StepAtOption = Annotated[
    str,
    typer.Option(
        "--step-at",
        help="Line or function at which a training step ends, if none is detected.",
        metavar="FILE:LINE|FUNCTION",
        show_default=False,
    ),
]
Module = Annotated[bool, typer.Option("-m", "--module", help="SCRIPT is a module's name, as for `python -m`.")]


def main(
    script: Annotated[Path, typer.Argument(help="The script or notebook to run; with -m, a module's name.")],
    arguments: Arguments = None,
    on: Annotated[
        Literal["npu", "mlu", "original"],
        typer.Option(help="Card to stand in for. original: run an unmigrated script, its CUDA calls on the CPU."),
    ] = "npu",
    steps: Annotated[
        int | None, typer.Option(help="Stop after this many training steps; 0: expect none.", min=0, metavar="N")
    ] = None,
    batches: Annotated[
        int | None,
        typer.Option(help="End each pass over a DataLoader after this many batches, to run all of a script.", min=1),
    ] = None,
    ranks: Ranks = 1,
    limits_mode: Annotated[
        limits.Mode, typer.Option("--limits", help="Reaction if the script meets a limit of the card.")
    ] = "error",
    limit: OneLimit = None,
    timeout: Annotated[float, typer.Option(help="Time limit in seconds; 0: none.", min=0)] = 600.0,
    memory: Memory = None,
    seed: Annotated[int | None, typer.Option(help="Seed of Python, NumPy and the framework.", min=0)] = None,
    fake_data: FakeData = False,
    record: Annotated[
        Path | None, typer.Option(help="Folder for the record: summary, limits, losses, weights, files written.")
    ] = None,
    here: Annotated[bool, typer.Option("--here", help="Run in this folder instead of in a copy.")] = False,
    framework: Framework = None,
    launch: Launch = "auto",
    module: Module = False,
    step_at: StepAtOption = "",
    lang: Annotated[Literal["en", "zh"], typer.Option(help="Language of the sentences about limits.")] = "en",
) -> None:
    """Run a migrated script without the accelerator, on a stand-in that enforces the card's documented limits.

    This executes the script in a separate process and a copy of its folder. It is not a sandbox: the script has your
    rights and can reach all your files.

    The exit code is the script's. If that is 0, it is 1 if a limit in mode `error` was met, if no training step was
    recognised (unless --steps is 0), or if a process left no report. It is 2 if the rehearsal could not start.
    """
    switches = ",".join([limits_mode, *(limit or [])])
    limits.parse_modes(switches)
    path = project.find_module_file(str(script)) if module else find_script(script)
    sources = project.read_project(path)
    stage = framework or project.find_framework(sources)
    project.refuse_missing_packages(sources)
    if stage == "torch":
        refuse_old_torch()
    record_folder = prepare_record(record)
    try:
        launch_line = find_launch_line(sources) if launch == "auto" and ranks > 1 else ""
        start_folder = str(path.parent) if is_notebook(path) else os.getcwd()
        plan = Plan(
            platform=on,
            framework=stage,
            script=str(path),
            arguments=tuple(arguments or []),
            record_folder=str(record_folder),
            visible_start_folder=start_folder,
            start_folder=start_folder,
            module=str(script) if module else "",
            steps=steps,
            batches=batches,
            timeout=timeout or None,
            memory=parse_size(memory) if memory else None,
            seed=seed,
            ranks=ranks,
            script_starts_ranks=launch == "self" or bool(launch_line),
            step_at=str(find_step_end(step_at, project.list_relative_sources(sources, path.parent))) if step_at else "",
            limit_modes=switches,
            fake_data=fake_data,
            language=lang,
            command=shlex.join(["viaduct", *sys.argv[1:]]),
        )
        if not here:
            from viaduct.rehearsal.files import choose_file_view

            plan = choose_file_view(plan, print_note)
        raise typer.Exit(run_rehearsal(plan, launch_line, record))
    finally:
        if record is None:
            shutil.rmtree(record_folder, ignore_errors=True)


def run_rehearsal(plan: Plan, launch_line: str, record: Path | None) -> int:
    """Rehearse the script, print notes before and after; return the exit code.

    `launch_line` is the script's line that starts its ranks; empty if it has none.
    """
    from viaduct.rehearsal.process import rehearse

    place = "in this folder" if plan.file_view == "here" else "in a copy of its folder"
    print_note(f"this executes {Path(plan.script).name}, with your rights; {place}.")
    card = (
        "CUDA calls run on the CPU"
        if plan.platform == "original"
        else f"a stand-in on the CPU plays the {plan.platform}"
    )
    print_note(f"{card}; {describe_plan(plan)}.")
    if launch_line:
        print_note(f"the script starts its ranks itself ({launch_line}): it is run once, and sees {plan.ranks} cards.")
    summary: Summary = rehearse(plan, print_note)
    headline, *lines = describe_summary(summary, plan)
    print_note(headline)
    if record is not None:
        written = f"; what the script wrote, in {record}/work" if plan.file_view != "here" else ""
        lines += [f"The record is in {record}{written}.", *describe_points(record)]
    for line in lines:
        print(f"  {line}", file=sys.stderr, flush=True)
    return summary.exit_code


def describe_points(record: Path) -> list[str]:
    """Describe the profiling points of a TensorFlow 1 graph and their use; empty if the rehearsal found none."""
    from viaduct.cards.cann_options import PROFILING_POINTS_FILE
    from viaduct.migration.profiling_points import read_points

    if not (record / PROFILING_POINTS_FILE).is_file():
        return []
    points = " and ".join(name or "none" for name in read_points(record))
    return [
        f"The forward pass begins and the backward pass ends at {points}.",
        f"`viaduct migrate … --profile DIR --profile-points {shlex.quote(str(record))}` gives them to CANN's profiler.",
    ]


def describe_plan(plan: Plan) -> str:
    """Describe steps, limits and ranks of a rehearsal."""
    length = f"{plan.steps} steps" if plan.steps else "to its end"
    timeout = f"at most {plan.timeout:g} s" if plan.timeout else "no time limit"
    ranks = f"{plan.ranks} ranks" if plan.ranks > 1 else "1 rank"
    return f"{length}, {timeout}, {ranks}, limits: {plan.limit_modes.replace(',', ', ')}"


def find_script(script: Path) -> Path:
    """Return the script's absolute path; raise BadValue for a folder or a missing file."""
    if script.is_dir():
        raise BadValue(f"{str(script)!r} is a folder.", "Name the script that trains.")
    if not script.exists():
        from viaduct.scripts.runner import suggest_scripts

        raise BadValue(f"there is no script {str(script)!r}.", *suggest_scripts(script))
    return script.resolve()


def prepare_record(record: Path | None) -> Path:
    """Return an empty folder for the record: `record`, which is created, or a temporary one."""
    if record is None:
        return Path(tempfile.mkdtemp(prefix="viaduct_rehearsal_"))
    if record.exists() and (not record.is_dir() or any(record.iterdir())):
        raise BadRun(f"--record {record} exists already.", "Choose another folder, or remove the old one.")
    record.mkdir(parents=True, exist_ok=True)
    return record.resolve()


def parse_size(text: str) -> int:
    """Return the bytes of a size such as 8G; the units are powers of 1024."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise BadValue(f"--memory {text!r} is not a size.", "Write 8G, 500M or a number of bytes.")
    return int(float(match[1]) * SIZES[match[2].upper()])


def print_note(line: str) -> None:
    print(f"viaduct rehearse: {line}", file=sys.stderr, flush=True)
