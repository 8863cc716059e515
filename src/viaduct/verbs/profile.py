"""viaduct profile"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from viaduct.errors import BadValue, UnknownName
from viaduct.terminal import print_note
from viaduct.verbs._grouped_help import Subcommands

if TYPE_CHECKING:
    from viaduct.profiling.collector import Plan
    from viaduct.profiling.gather import RankProfile
    from viaduct.profiling.record import Profile

app = Subcommands("Show where the time of a training step goes, and what to do about it.")
Force = Annotated[bool, typer.Option("--force", help="Replace an earlier profile in --out; other files stay.")]
Json = Annotated[bool, typer.Option("--json", help="Print profile.json instead of the summary.")]


@app.command()
def run(
    target: Annotated[
        str, typer.Argument(help="A PyTorch script; with -m, a module's name; or a recipe's name or file.")
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="After --: the script's own arguments.", metavar="[-- ARGUMENTS]")
    ] = None,
    steps: Annotated[int, typer.Option(help="Number of timed steps.", min=1)] = 20,
    skip: Annotated[int, typer.Option(help="Warm-up steps before the timed ones.", min=0)] = 5,
    recorded: Annotated[
        int, typer.Option(help="Steps after the timed ones that record operators, kernels and memory.", min=0)
    ] = 5,
    device: Annotated[
        str, typer.Option(help="auto, cpu, cuda, npu, mlu. A script chooses its device itself: auto.")
    ] = "auto",
    ranks: Annotated[int, typer.Option(help="Ranks on this machine.", min=1)] = 1,
    out: Annotated[Path, typer.Option(help="Folder for the profile.")] = Path("prof"),
    force: Force = False,
    module: Annotated[bool, typer.Option("-m", help="Run a module, as `python -m` does.")] = False,
    data: Annotated[
        Path | None, typer.Option(help="Of a recipe: folder of its data, or synthetic.", show_default="the recipe's")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Of a recipe: change a field; may be repeated.", metavar="FIELD=VALUE"),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Of a recipe: try the first advice that it can follow, and measure it.")
    ] = False,
    json: Json = False,
) -> None:
    """Run some steps of a script, unmodified, or of a recipe, and write a profile of their time.

    The script runs in a separate process and is ended after the last step. Times come from the timed steps, operators
    from the recorded ones, which are slower.
    """
    from viaduct.profiling.collector import Plan

    plan = Plan(skip, steps, recorded)
    if not module and is_recipe(target):
        if arguments:
            raise BadValue(
                f"a recipe takes no arguments: {arguments[0]!r}.", "Change its fields with --set FIELD=VALUE."
            )
        raise typer.Exit(profile_recipe(target, plan, device, ranks, out, force, data, settings, apply, json))
    for flag, value in (("--data", data), ("--set", settings), ("--apply", apply)):
        if value:
            raise BadValue(
                f"{flag} goes with a recipe; {target!r} is a script.", "Arguments of a script stand after --."
            )
    raise typer.Exit(profile_script(target, arguments or [], module, plan, device, ranks, out, force, json))


@app.command()
def read(
    path: Annotated[Path, typer.Argument(help="A folder or file of msprof, torch_npu, Kineto, or of viaduct.")],
    out: Annotated[
        Path | None, typer.Option(help="Write the profile and its page there.", show_default="nothing is written")
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Read an existing profile, also one of another tool; show its summary and advice; --out writes its page."""
    from viaduct.profiling.readers import read_any

    profile = read_any(path)
    if out is not None:
        from viaduct.profiling import outputs

        outputs.prepare_folder(out, force)
        outputs.remove_profile(out)
        profile, files = outputs.complete_folder(profile, out, [], print_note)
        list_files(files)
    elif not profile.advice:
        from viaduct.profiling.advice import add_advice

        advised = add_advice(profile)
        # A profile of viaduct has the notes about the measurements that were made when it was written.
        is_own = profile.facts.kind in ("script", "recipe")
        profile = replace(profile, advice=advised.advice) if is_own else advised
    print_profile(profile, json)


@app.command()
def compare(
    before: Annotated[Path, typer.Argument(help="A profile of viaduct or of another tool.")],
    after: Annotated[Path, typer.Argument(help="The profile to compare with it.")],
    out: Annotated[
        Path | None, typer.Option(help="Write the page there, too.", metavar="FILE", show_default="none")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file of --out.")] = False,
) -> None:
    """Compare two profiles: phases, operators and kernels that became slower or faster.

    Exit code 0: neither the iteration nor a phase differs by more than the noise of the steps. 1: one of them does.
    2: too few steps were timed, or nothing can be compared.
    """
    from viaduct.profiling.compare import compare_profiles
    from viaduct.profiling.compare_text import format_difference
    from viaduct.profiling.outputs import check_page
    from viaduct.profiling.readers import read_any

    if out is not None:
        check_page(out, force)
    difference = compare_profiles(read_any(before), read_any(after))
    if out is not None:
        from viaduct.profiling.compare_page import write_difference_page

        write_difference_page(difference, out)
        list_files([out])
    print(format_difference(difference))
    raise typer.Exit(difference.exit_code)


# Recipes


def is_recipe(target: str) -> bool:
    """Return True for a recipe's name, and for a file that assigns `recipe` and imports viaduct."""
    from viaduct import recipes

    if target in recipes.names():
        return True
    if not target.endswith(".py") and "/" not in target and not Path(target).exists():
        raise UnknownName("recipe", target, recipes.names(), "It is no script, either; a module is run with -m.")
    return defines_recipe(Path(target))


def defines_recipe(path: Path) -> bool:
    """Return True if the source of a file assigns `recipe` and imports viaduct; the file is not executed."""
    import ast

    try:
        tree = ast.parse(path.read_bytes()) if path.is_file() else ast.Module([], [])
    except (OSError, SyntaxError, ValueError):
        return False  # running the file as a script reports the error
    assigned = {
        name.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for name in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(name, ast.Name)
    }
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    return "recipe" in assigned and any(name.split(".")[0] == "viaduct" for name in imported)


def profile_recipe(
    target: str,
    plan: Plan,
    device: str,
    ranks: int,
    out: Path,
    force: bool,
    data: Path | None,
    settings: list[str] | None,
    apply: bool,
    json: bool,
) -> int:
    """Profile steps of a recipe in this process, or in one for each rank."""
    from viaduct.profiling import outputs
    from viaduct.recipes import load
    from viaduct.verbs._recipe_changes import merge_changes

    loaded = load(target)
    changes = merge_changes({}, settings)
    outputs.prepare_folder(out, force)
    # torch is imported from here on, after the flags have been checked.
    from viaduct.profiling.trace import read_events
    from viaduct.training.profiled import RecipeJob
    from viaduct.training.profiled import profile_recipe as train_profiled_steps

    outputs.remove_profile(out)
    job = RecipeJob(loaded, out, plan, device, data, changes, get_command_line())
    profile = train_profiled_steps(job, ranks)
    profile = write_and_print(profile, out, read_events(out), json)
    if apply:
        from viaduct.training.profile_apply import apply_advice

        applied = apply_advice(profile.advice, job, ranks, report_line=print_note)
        text = (
            applied.describe() if applied else "--apply: the recipe can follow none of the advice; nothing was tried."
        )
        print(text, file=sys.stderr if json else sys.stdout)
    return 0


# Scripts


def profile_script(
    target: str,
    arguments: list[str],
    module: bool,
    plan: Plan,
    device: str,
    ranks: int,
    out: Path,
    force: bool,
    json: bool,
) -> int:
    """Run a script under the profiler, write the profile, and return the exit code."""
    from viaduct import devices
    from viaduct.profiling import outputs
    from viaduct.profiling.script_job import ScriptJob
    from viaduct.profiling.script_run import run_script_job
    from viaduct.scripts.runner import load_script

    if device not in ("auto", *devices.names()):
        raise UnknownName("device", device, ("auto", *devices.names()), "A script chooses its device itself: auto.")
    script = load_script(target, arguments, module)
    outputs.prepare_folder(out, force)
    with tempfile.TemporaryDirectory(prefix="viaduct-profile-") as record_folder:
        script_folder = str(script.file.resolve().parent)
        job = ScriptJob(target, tuple(arguments), module, record_folder, script_folder, plan)
        sys.stdout.flush()
        result = run_script_job(job, ranks, sys.stderr.fileno() if json else None, print_note)
        profiles = [add_facts(rank, result.reason, device) for rank in result.ranks]
        profiles = profiles or [make_empty_profile(target, result.reason)]
        outputs.remove_profile(out)
        profile, events = outputs.write_ranks([(rank.rank, rank.profile, rank.events) for rank in profiles], out)
    if result.reason:
        print_note(f"{result.reason}.")
    write_and_print(profile, out, events, json)
    return 128 + result.stop_signal if result.stop_signal else result.code


def add_facts(rank: RankProfile, reason: str, device: str) -> RankProfile:
    """Add the command line, the reason why the script ended, and a note if it used another device than --device."""
    facts = rank.profile.facts
    notes = facts.notes
    if device not in ("auto", facts.device):
        notes = (*notes, f"--device is {device}; the script trains on {facts.device}, which is what was measured.")
    changed = replace(facts, ended=reason, command=get_command_line(), notes=notes)
    return replace(rank, profile=replace(rank.profile, facts=changed))


def make_empty_profile(target: str, reason: str) -> RankProfile:
    """Return an empty profile for a script that ended before a rank had recorded anything."""
    from viaduct.profiling.gather import RankProfile
    from viaduct.profiling.record import Facts, Profile

    facts = Facts(target, "script", command=get_command_line(), ended=reason)
    return RankProfile(0, Profile(facts), [], 0)


# Output


def write_and_print(profile: Profile, out: Path, events: Sequence[dict[str, Any]], json: bool) -> Profile:
    """Write the folder, print the summary and the file names; return the profile with its advice."""
    from viaduct.profiling import outputs

    profile, files = outputs.complete_folder(profile, out, events, print_note)
    print_profile(profile, json)
    list_files(files)
    return profile


def print_profile(profile: Profile, json: bool) -> None:
    if json:
        from viaduct.profiling.folder import encode_profile

        print(encode_profile(profile).decode())
        return
    from viaduct.profiling.summary import format_summary

    width = os.get_terminal_size().columns if sys.stdout.isatty() else 100
    print(format_summary(profile, width))


def list_files(files: Sequence[Path]) -> None:
    print_note("Written:")
    for path in files:
        print_note(f"  {path}")


def get_command_line() -> str:
    return shlex.join(["viaduct", *sys.argv[1:]])
