"""viaduct carry"""

from __future__ import annotations

import dataclasses
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from viaduct.migration.options import RULES, TF1, TORCH, Options
from viaduct.rehearsal import limits
from viaduct.signals import collect_signals
from viaduct.verbs._grouped_help import GroupedCommand
from viaduct.verbs._option_flags import Fields, with_option_flags
from viaduct.verbs.rehearse import (
    Arguments,
    FakeData,
    Framework,
    Launch,
    Memory,
    Module,
    OneLimit,
    Ranks,
    StepAtOption,
    parse_size,
)

if TYPE_CHECKING:
    from viaduct.carrying.carry import CarryResult


class Command(GroupedCommand):
    """Command with the headings of `carry --help`."""

    headings = ("Options", TORCH, TF1, RULES)


@with_option_flags
def main(
    source: Annotated[
        Path, typer.Argument(help="A script or notebook, a folder with --entry, a module with -m.", metavar="SCRIPT")
    ],
    arguments: Arguments = None,
    to: Annotated[Literal["npu", "mlu"], typer.Option(help="The accelerator.")] = "npu",
    *,
    options: Annotated[Options, Fields("entry", "exclude", "precision", "data_parallel", "only", "skip")],
    out: Annotated[Path, typer.Option(help="Folder for migrated copy, runs and report.")] = Path("carried"),
    force: Annotated[
        bool, typer.Option("--force", help="If --out exists, rename the old folder to OUT.1 first.")
    ] = False,
    migrated: Annotated[
        Path | None,
        typer.Option(help="Compare with this copy, migrated or changed by hand, instead of migrating.", metavar="DIR"),
    ] = None,
    earlier: Annotated[
        list[Path] | None,
        typer.Option(
            help="The --out of an earlier carry of the same files with other arguments: edits that it executed count "
            "here too; may be repeated.",
            metavar="OUT",
            show_default=False,
        ),
    ] = None,
    steps: Annotated[int, typer.Option(help="Number of training steps to compare.", min=1, metavar="N")] = 20,
    ranks: Ranks = 1,
    seed: Annotated[int, typer.Option(help="Seed of Python, NumPy and the framework, on both sides.", min=0)] = 7,
    limits_mode: Annotated[
        limits.Mode,
        typer.Option("--limits", help="Reaction if the migrated script meets a documented limit of the card."),
    ] = "error",
    limit: OneLimit = None,
    timeout: Annotated[float, typer.Option(help="Time limit of each run in seconds; 0: none.", min=0)] = 600.0,
    memory: Memory = None,
    fake_data: FakeData = False,
    framework: Framework = None,
    launch: Launch = "auto",
    module: Module = False,
    step_at: StepAtOption = "",
    distributed: Annotated[
        bool, typer.Option("--distributed", help="Migrate for several devices; --ranks above 1 implies it.")
    ] = False,
    lang: Annotated[Literal["en", "zh"], typer.Option(help="Language of findings and limits.")] = "en",
) -> None:
    """Migrate a script, rehearse the original and the migrated version, compare their results, write one report.

    This executes the script on the CPU with your rights, each side at least twice. Each run has its own process and its
    own copy of the working folder; it is not a sandbox. Exit code 0: both agree. 1: they differ. 2: one side did not
    finish, the card would refuse it, or a flag is wrong. 3: not proved, for example because an edit was never executed.
    """
    switches = ",".join([limits_mode, *(limit or [])])
    limits.parse_modes(switches)
    from viaduct.carrying.request import Request
    from viaduct.migration.checks import check_options
    from viaduct.rehearsal.project import find_module_file

    options = dataclasses.replace(options, to=to, distributed=distributed or ranks > 1)
    check_options(options)
    request = Request(
        source=find_module_file(str(source)) if module else source,
        module=str(source) if module else "",
        out=out,
        options=options,
        arguments=tuple(arguments or []),
        steps=steps,
        ranks=ranks,
        seed=seed,
        limits=switches,
        timeout=timeout or None,
        memory=parse_size(memory) if memory else None,
        fake_data=fake_data,
        framework=framework,
        launch=launch,
        step_at=step_at,
        migrated=migrated,
        earlier=tuple(earlier or ()),
        force=force,
        lang=lang,
        command=shlex.join(["viaduct", *sys.argv[1:]]),
    )
    from viaduct.carrying.carry import carry

    with collect_signals(raise_interrupted):
        result = carry(request, print_note, write_outputs)
    raise typer.Exit(print_result(result))


def raise_interrupted(number: int) -> NoReturn:
    """Raise Interrupted for a signal, so that files are cleaned up."""
    from viaduct.carrying.running import Interrupted

    raise Interrupted(number)


def write_outputs(result: CarryResult) -> None:
    """Write the record, the page, the reproducer and the speed baseline of a carry."""
    from viaduct.carrying import record, report, reproducer
    from viaduct.carrying.output_folder import BASELINE_FILE, COMPARISON_FOLDER, PAGE_FILE, RECORD_FILE, REPRODUCER_FILE
    from viaduct.carrying.speed import format_baseline
    from viaduct.comparison.output import write_drift
    from viaduct.comparison.summary import make_summary

    if result.drift is not None:
        write_drift(result.drift, make_summary(result.drift), result.request.out / COMPARISON_FOLDER)
    record.write(result, result.request.out / RECORD_FILE)
    report.write(result, result.request.out / PAGE_FILE)
    if result.migrated is not None and result.migrated.is_finished:
        (result.request.out / BASELINE_FILE).write_text(format_baseline(result), encoding="utf-8")
    reproducer.write(result, result.request.out / REPRODUCER_FILE)


def print_result(result: CarryResult) -> int:
    """Print the result and return the exit code."""
    from viaduct.carrying.output_folder import PAGE_FILE
    from viaduct.carrying.sentences import list_remarks, make_headline

    print(make_headline(result))
    for name, text in list_remarks(result):
        print(f"  {name}: {text}")
    print(f"  Page: {result.request.out / PAGE_FILE}", flush=True)
    return result.exit_code


def print_note(line: str) -> None:
    print(f"viaduct carry: {line}", file=sys.stderr, flush=True)
