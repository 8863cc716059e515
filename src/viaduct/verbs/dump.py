"""viaduct dump"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from viaduct.comparison.dump_options import DumpOptions
from viaduct.errors import BadRun, BadValue
from viaduct.terminal import print_note
from viaduct.verbs._option_flags import with_option_flags

if TYPE_CHECKING:
    from viaduct.comparison.naming import Steps
    from viaduct.comparison.script_dump import ScriptDump
    from viaduct.rehearsal.tf1_stage.golden import GoldenDump
    from viaduct.scripts.runner import Script, ScriptResult


@with_option_flags
def main(
    script: Annotated[
        str, typer.Argument(help="A script that trains with PyTorch or TensorFlow 1; with -m, a module's name.")
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="After --: the script's own arguments.", metavar="[-- ARGUMENTS]")
    ] = None,
    *,
    options: DumpOptions,
    out: Annotated[Path, typer.Option(help="Folder for the dump.")] = Path("dump"),
    module: Annotated[bool, typer.Option("-m", help="Run a module, as `python -m` does.")] = False,
    step_by: Annotated[
        Literal["auto", "optimizer", "forward"],
        typer.Option(help="Event that ends a step. auto: the optimizer; without one, each forward pass."),
    ] = "auto",
    run_on: Annotated[
        bool, typer.Option("--run-on/--stop-after-last", help="Continue after the last dumped step, or end the script.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier dump in --out.")] = False,
) -> None:
    """Run any PyTorch or TensorFlow 1 script, unmodified, and dump the tensors of chosen training steps.

    A step ends with a call of the optimizer, unless --step-by says otherwise. The script ends after the last chosen
    step, unless --run-on is given. For a TensorFlow script the output tensors of a step are dumped, with the names of
    the TensorFlow debugger.
    """
    from viaduct.comparison.naming import parse_patterns, parse_steps
    from viaduct.scripts.runner import load_script

    chosen = parse_steps(options.steps, "--steps")
    loaded = load_script(script, arguments or [], module)
    check_out(out, force)
    if is_tensorflow(loaded.file):
        unsupported = {
            "--level": options.level != DumpOptions.level,
            "--statistics-only": options.statistics_only,
            "--mode input": options.mode == "input",
            "--step-by forward": step_by == "forward",
        }
        for flag, is_given in unsupported.items():
            if is_given:
                raise BadValue(
                    f"{flag} does not go with a TensorFlow script.",
                    "All output tensors of a step are dumped; --only selects operators.",
                )
        raise typer.Exit(dump_graph(loaded, chosen, parse_patterns(options.only).patterns, out, run_on, force))

    # torch is imported from here on, after the flags have been checked.
    from viaduct.comparison.dump import clear_dump, make_plan
    from viaduct.comparison.script_dump import ScriptDump

    plan = make_plan(**vars(options))
    if force and out.is_dir():
        clear_dump(out)
    dump = ScriptDump(plan, out.resolve(), loaded, run_on, step_by)
    raise typer.Exit(report_dump(dump, dump.run(), out))


def check_out(out: Path, force: bool) -> None:
    """Raise BadRun if --out is a file or a folder that is not empty; with `force` it may hold an earlier dump."""
    from viaduct.comparison.naming import is_step_folder

    if out.exists() and not out.is_dir():
        raise BadRun(f"--out {out} is a file, not a folder.")
    if out.is_dir() and any(out.iterdir()):
        if not force:
            raise BadRun(f"--out {out} is not empty.", "Choose another place, or replace the dump there with --force.")
        if other_files := [entry.name for entry in out.iterdir() if not is_step_folder(entry)]:
            raise BadRun(f"--out {out} holds more than a dump: {other_files[0]!r}.", "Choose another place.")


def is_tensorflow(file: Path) -> bool:
    """Return True if the script and the files beside it train with TensorFlow.

    If they import both frameworks, a call of `backward` means that they train with PyTorch.
    """
    from viaduct.rehearsal.project import FRAMEWORK_OF_PACKAGE, find_framework, read_project

    project = read_project(file)
    return bool(project.list_imported_packages() & set(FRAMEWORK_OF_PACKAGE)) and find_framework(project) == "tf1"


def dump_graph(script: Script, chosen: Steps, patterns: tuple[str, ...], out: Path, run_on: bool, force: bool) -> int:
    """Dump the chosen steps of a TensorFlow 1 script; return its exit code.

    `patterns`: of the operators to dump; empty: all. Raises BadValue if the script succeeds and nothing was dumped.
    """
    from viaduct.rehearsal.tf1_stage import golden, require_tensorflow

    require_tensorflow()
    if force and out.is_dir():
        shutil.rmtree(out)
    dump = golden.GoldenDump(out.resolve(), chosen.__contains__, chosen.last, run_on, patterns)
    result = golden.dump_script(dump, script)
    if result.failure:
        print_note(f"viaduct dump: the script failed: {result.failure}")
    if not any(dump.written.values()):
        if result.code:
            return result.code
        shutil.rmtree(out, ignore_errors=True)
        raise make_empty_graph_error(dump, script)
    report_graph(dump, script, chosen.describe_missing(dump.written), out)
    return result.code


def make_empty_graph_error(dump: GoldenDump, script: Script) -> BadValue:
    """Return the error that no operator matches --only, or that no chosen step was reached."""
    from viaduct.comparison.naming import explain_no_match

    if dump.written:
        names = explain_no_match(dump.name_patterns, dump.operators)
        return BadValue(f"--only: {names}", "Write names with * and ?: 'layer3/*,fc/MatMul'. Nothing was dumped.")
    return BadValue(
        f"nothing of {script.name} was dumped: it took {dump.steps_taken} training steps.",
        "Steps count from 0: choose among them with --steps.",
    )


def report_graph(dump: GoldenDump, script: Script, missing: str, out: Path) -> None:
    """Print the result of dumping a TensorFlow 1 script."""
    if missing:
        print_note(f"Not reached: step {missing}. The script took {dump.steps_taken} steps.")
    if dump.omitted:
        print_note(f"Left out: {dump.omitted} tensors in tf.cond or tf.while_loop, which may have no value or many.")
    counts = ", ".join(f"{step} ({count} tensors)" for step, count in dump.written.items())
    print_note(f"Dumped step {counts} of {script.name} to {out}. Compare the NPU's dump with it:")
    print_note(f"  viaduct compare NPU_DUMP {out}/step_{max(dump.written):06d} --explain")


def report_dump(dump: ScriptDump, result: ScriptResult, out: Path) -> int:
    """Print the result of dumping a PyTorch script; return its exit code, or raise BadValue if nothing was dumped."""
    if result.failure:
        print_note(f"viaduct dump: the script failed: {result.failure}")
    if not dump.written:
        if result.code:
            print_note(f"viaduct dump: nothing was dumped: the script ended with exit code {result.code}.")
            return result.code
        raise BadValue(f"no step of {dump.script.name} was dumped: {describe_activity(dump)}.", *list_advice(dump))
    if misses := dump.plan.explain_no_match():
        from viaduct.comparison.dump import clear_dump

        clear_dump(out)
        raise BadValue(f"--only: {misses}", "Write names with * and ?: 'layer3.*,fc'. Nothing was dumped.")
    if missing := dump.plan.steps.describe_missing(dump.written):
        print_note(f"Not reached: step {missing}. The script took {dump.seen.steps} steps.")
    steps = ", ".join(str(step) for step in dump.written)
    print_note(f"Dumped step {steps} of {dump.script.name} to {out}. Compare the dump of an accelerator with it:")
    print_note(f"  viaduct compare ACCELERATOR_DUMP {out} --explain")
    return result.code


def describe_activity(dump: ScriptDump) -> str:
    """Describe the networks, optimizers and steps of a script, if nothing was dumped."""
    seen = dump.seen
    if not seen.networks and not seen.passes and not seen.optimizers:
        return "it ended without calling a torch.nn.Module or making an optimizer"
    kinds = ", ".join(seen.networks) or "no network"
    return f"it called {kinds}, made {seen.optimizers} optimizers and took {seen.steps} steps"


def list_advice(dump: ScriptDump) -> list[str]:
    """Return hints for the error that nothing was dumped."""
    if dump.seen.steps:
        return [f"Its steps are 0 to {dump.seen.steps - 1}: choose among them with --steps."]
    if dump.seen.networks and dump.step_by == "optimizer":
        return ["Its optimizer never stepped; with --step-by forward each forward pass is a step."]
    return ["Work in other processes (spawned ranks) is not dumped; run a single process."]
