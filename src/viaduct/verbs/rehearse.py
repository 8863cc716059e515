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
from viaduct.rehearsal.plan import Plan, StageName
from viaduct.rehearsal.stage import refuse_old_torch
from viaduct.rehearsal.step_at import find_target
from viaduct.rehearsal.summary import Summary, describe_summary
from viaduct.scripts.notebook_runs import is_notebook

SIZES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}

# Flags that `carry` has too.
Arguments = Annotated[
    list[str] | None, typer.Argument(help="After --: what the script itself is given.", metavar="[-- ARGUMENTS]")
]
Ranks = Annotated[int, typer.Option(help="Ranks on this machine; as many cards are seen.", min=1)]
OneLimit = Annotated[
    list[str] | None, typer.Option(help="One limit otherwise, such as float64=warn.", metavar="NAME=MODE")
]
Memory = Annotated[str | None, typer.Option(help="Of each rank with all that it starts, such as 8G.", metavar="SIZE")]
FakeData = Annotated[
    bool, typer.Option("--fake-data", help="Make up records where files are missing and shapes are declared.")
]
Framework = Annotated[StageName | None, typer.Option(help="The framework that trains.", show_default="by its imports")]
Launch = Annotated[
    Literal["auto", "self", "ranks"],
    typer.Option(help="With --ranks: does the script start them (mp.spawn), or do we?"),
]
StepAtOption = Annotated[
    str,
    typer.Option(
        "--step-at", help="Where a step ends, if none is found.", metavar="FILE:LINE|FUNCTION", show_default=False
    ),
]


Module = Annotated[bool, typer.Option("-m", "--module", help="SCRIPT is a module's name, as for `python -m`.")]


def main(
    script: Annotated[Path, typer.Argument(help="The script or notebook to run; with -m, a module's name.")],
    arguments: Arguments = None,
    on: Annotated[
        Literal["npu", "mlu", "original"],
        typer.Option(help="The card that is played. original: an unmigrated script, its CUDA calls on the CPU."),
    ] = "npu",
    steps: Annotated[
        int | None, typer.Option(help="Stop after so many training steps. 0: none is expected.", min=0, metavar="N")
    ] = None,
    batches: Annotated[
        int | None,
        typer.Option(help="End each pass over a DataLoader after so many batches: the whole script, briefly.", min=1),
    ] = None,
    ranks: Ranks = 1,
    limits_mode: Annotated[
        limits.Mode, typer.Option("--limits", help="What the card's documented limits do to the script.")
    ] = "error",
    limit: OneLimit = None,
    timeout: Annotated[float, typer.Option(help="Seconds; 0: no limit.", min=0)] = 600.0,
    memory: Memory = None,
    seed: Annotated[int | None, typer.Option(help="Of Python, NumPy and the framework.", min=0)] = None,
    fake_data: FakeData = False,
    record: Annotated[
        Path | None, typer.Option(help="Keep the record there: summary, limits, losses, weights, what it wrote.")
    ] = None,
    here: Annotated[bool, typer.Option("--here", help="Run in this folder itself, not in a mirror of it.")] = False,
    framework: Framework = None,
    launch: Launch = "auto",
    module: Module = False,
    step_at: StepAtOption = "",
    lang: Annotated[Literal["en", "zh"], typer.Option(help="The language of the limits' reasons.")] = "en",
) -> None:
    """Run a migrated script where there is no accelerator, on a stand-in that keeps the card's documented limits.

    This executes the script. It runs in a process and a folder of its own; it is not shut in.
    """
    switches = ",".join([limits_mode, *(limit or [])])
    limits.parse(switches)
    path = project.find_module(str(script)) if module else find_script(script)
    known = project.read(path)
    stage = framework or project.stage_of(known)
    project.refuse_missing(known, on)
    if stage == "torch":
        refuse_old_torch()
    kept = prepare_record(record)
    try:
        line = project.launch_line(known) if launch == "auto" and ranks > 1 else ""
        plan = Plan(
            on=on,
            stage=stage,
            script=str(path),
            arguments=tuple(arguments or []),
            record=str(kept),
            work=str(path.parent) if is_notebook(path) else os.getcwd(),
            origin=str(path.parent) if is_notebook(path) else os.getcwd(),
            module=str(script) if module else "",
            steps=steps,
            batches=batches,
            timeout=timeout or None,
            memory=parse_size(memory) if memory else None,
            seed=seed,
            ranks=ranks,
            launches_itself=launch == "self" or bool(line),
            step_at=str(find_target(step_at, project.relative_sources(known, path.parent))) if step_at else "",
            limits=switches,
            fake_data=fake_data,
            language=lang,
            command=shlex.join(["viaduct", *sys.argv[1:]]),
        )
        raise typer.Exit(run_rehearsal(plan if here else choose_view(plan), line, record))
    finally:
        if record is None:
            shutil.rmtree(kept, ignore_errors=True)


def choose_view(plan: Plan) -> Plan:
    """Return the folder mode: what the script writes stays apart from the user's files."""
    from viaduct.rehearsal.files import choose_view

    return choose_view(plan, print_note)


def run_rehearsal(plan: Plan, line: str, record: Path | None) -> int:
    """Rehearse the script; return the exit code."""
    from viaduct.rehearsal.process import rehearse

    where = "in this folder" if plan.view == "here" else "what it writes is kept apart from your files"
    print_note(f"this executes {Path(plan.script).name}, with your rights; {where}.")
    card = "CUDA calls run on the CPU" if plan.on == "original" else f"a stand-in on the CPU plays the {plan.on}"
    print_note(f"{card}; {describe_plan(plan)}.")
    if line:
        print_note(f"the script starts its ranks itself ({line}): it is run once, and sees {plan.ranks} cards.")
    summary: Summary = rehearse(plan, print_note)
    first, *more = describe_summary(summary, plan)
    print_note(first)
    if record is not None:
        more.append(
            f"The record is in {record}"
            + (f"; what the script wrote, in {record}/work." if plan.view != "here" else ".")
        )
        more += describe_points(record)
    print(*(f"  {said}" for said in more), sep="\n", end="\n" if more else "", file=sys.stderr, flush=True)
    return summary.exit_code


def describe_points(record: Path) -> list[str]:
    """Return what to do with the profiling points of a TensorFlow 1 graph, where they were found."""
    from viaduct.migration.profiling_points import FILE, read_points

    if not (record / FILE).is_file():
        return []
    points = " and ".join(name or "none" for name in read_points(record))
    return [
        f"The forward pass begins and the backward pass ends at {points}.",
        f"`viaduct migrate … --profile DIR --profile-points {shlex.quote(str(record))}` gives them to CANN's profiler.",
    ]


def describe_plan(plan: Plan) -> str:
    """Describe steps, limits and ranks of a rehearsal."""
    until = f"{plan.steps} steps" if plan.steps else "to its end"
    bound = f"at most {plan.timeout:g} s" if plan.timeout else "no limit of time"
    ranks = f"{plan.ranks} ranks" if plan.ranks > 1 else "1 rank"
    return f"{until}, {bound}, {ranks}, limits: {plan.limits.replace(',', ', ')}"


def find_script(script: Path) -> Path:
    """Return the script; refuse a folder and a missing file."""
    if script.is_dir():
        raise BadValue(f"{str(script)!r} is a folder.", "Name the script that trains.")
    if not script.exists():
        from viaduct.scripts.runner import similar

        raise BadValue(f"there is no script {str(script)!r}.", *similar(script))
    return script.resolve()


def prepare_record(record: Path | None) -> Path:
    """Return an empty folder for the record."""
    if record is None:
        return Path(tempfile.mkdtemp(prefix="viaduct_rehearsal_"))
    if record.exists() and (not record.is_dir() or any(record.iterdir())):
        raise BadRun(f"--record {record} is there already.", "Choose another place, or take the old one away.")
    record.mkdir(parents=True, exist_ok=True)
    return record.resolve()


def parse_size(text: str) -> int:
    """Parse a size such as 8G."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise BadValue(f"--memory {text!r} is no size.", "Write 8G, 500M or a number of bytes.")
    return int(float(match[1]) * SIZES[match[2].upper()])


def print_note(line: str) -> None:
    print(f"viaduct rehearse: {line}", file=sys.stderr, flush=True)
