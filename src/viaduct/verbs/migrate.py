"""viaduct migrate"""

from __future__ import annotations

import dataclasses
import os
import shlex
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from viaduct.errors import BadValue
from viaduct.flags import Flag
from viaduct.migration.options import RULES, TF1, TORCH, Options
from viaduct.verbs._grouped_help import GroupedCommand
from viaduct.verbs._option_flags import with_option_flags

if TYPE_CHECKING:
    from viaduct.migration.results import Outcome

REPORTS = "Reports"


class Command(GroupedCommand):
    """Command with the headings of `migrate --help`."""

    headings = ("Options", TORCH, TF1, RULES, REPORTS)


@dataclass(frozen=True)
class Output:
    """Flags about the written files, the reports and the exit code."""

    out: Annotated[Path | None, Flag("Write a migrated copy there, with start scripts.", metavar="DIR")] = None
    in_place: Annotated[bool, Flag("Change the files themselves, all or none.")] = False
    force: Annotated[bool, Flag("Ignore uncommitted changes in git; let reports replace other files.")] = False
    check: Annotated[bool, Flag("Write nothing; exit 1 if something would change.")] = False
    strict: Annotated[bool, Flag("Exit 1 if something needs manual review.")] = False
    jobs: Annotated[int, Flag("Number of processes.", default="the cores", minimum=0)] = 0
    quiet: Annotated[bool, Flag("Print only the summary.")] = False
    report: Annotated[Path | None, Flag("Write a page with all changes.", REPORTS, "HTML")] = None
    sarif: Annotated[Path | None, Flag("Write the findings as SARIF 2.1.0.", REPORTS, "FILE")] = None
    json_file: Annotated[Path | None, Flag("Write everything as JSON.", REPORTS, "FILE", name="--json")] = None
    lang: Annotated[Literal["en", "zh"], Flag("Language of the findings.", REPORTS)] = "en"


@with_option_flags
def main(
    path: Annotated[
        Path | None, typer.Argument(help="A script, a notebook or a project's folder.", show_default=False)
    ] = None,
    show_rules: Annotated[
        bool, typer.Option("--list", help="List the rules with a summary of each.", rich_help_panel=RULES)
    ] = False,
    explain: Annotated[
        str | None, typer.Option(help="Explain a rule, with an example.", rich_help_panel=RULES, metavar="RULE")
    ] = None,
    *,
    options: Options,
    profile_points: Annotated[
        Path | None,
        typer.Option(
            help="With --profile: take fp_point and bp_point from this rehearsal's record.",
            rich_help_panel=TF1,
            metavar="RECORD",
        ),
    ] = None,
    output: Output,
) -> None:
    """Port PyTorch CUDA scripts and TensorFlow 1 scripts to the NPU or MLU by rewriting their text. Without --out or
    --in-place no migrated file is written: the changes are shown. Nothing of the project is imported or run.

    Exit code 0: done. 1: some files could not be read, or --check or --strict asks for it. 2: the command failed.
    """
    if show_rules:
        return list_rules()
    if explain is not None:
        return explain_rule(explain)
    if path is None:
        raise BadValue("migrate what?", "Give a script or a folder: `viaduct migrate train.py`; or --list.")
    from viaduct.migration.checks import check_options
    from viaduct.migration.profiling_points import read_points

    if profile_points is not None:
        options = dataclasses.replace(options, profile_points=read_points(profile_points))
    check_options(options)
    raise typer.Exit(run_migration(path, options, output))


def run_migration(path: Path, options: Options, output: Output) -> int:
    check_modes(path, output)
    check_reports(path, output)
    outcome = migrate_files(path, options, output.jobs, output.quiet)
    if output.in_place and not output.force:
        warn_without_git(outcome)
    write_files(outcome, output)
    write_reports(outcome, output)
    print_outcome(outcome, output)
    return get_exit_code(outcome, output)


def list_rules() -> None:
    from viaduct.migration.catalogue import get_summary
    from viaduct.migration.rule import all_rules

    rules = sorted(all_rules(), key=lambda rule: rule.name)
    width = max(len(rule.name) for rule in rules)
    for rule in rules:
        condition = "" if rule.when is None else " (when asked for)"
        print(f"{rule.name:<{width}}  {rule.category:<11}  {get_summary(rule)}{condition}")
    print(f"{len(rules)} rules; `viaduct migrate --explain RULE` shows one with its example.", file=sys.stderr)


def explain_rule(name: str) -> None:
    """Print the documentation of a rule."""
    from viaduct.migration.catalogue import find_rules

    for index, rule in enumerate(find_rules(name)):
        targets, rows = ", ".join(rule.targets), " ".join(rule.spec_rows)
        head = f"{rule.name}: {rule.category}, for {targets}, rows {rows} of docs/rules.md"
        print(("\n" if index else "") + f"{head}\n\n{rule.doc.strip()}")


def check_modes(path: Path, output: Output) -> None:
    """Raise BadValue for contradictory flags."""
    modes = {"--out": output.out, "--in-place": output.in_place, "--check": output.check}
    chosen = [flag for flag, value in modes.items() if value]
    if len(chosen) > 1:
        raise BadValue(f"{' and '.join(chosen)} together.", "--out copies, --in-place changes, --check only asks.")
    if output.in_place:
        from viaduct.migration.writing import check_in_place

        check_in_place(path)
    if output.out is not None and os.path.exists(path):
        from viaduct.migration.writing import check_out

        check_out(path, output.out)


def check_reports(path: Path, output: Output) -> None:
    """Raise BadValue, before any work, for reports that cannot be written."""
    from viaduct.migration.report_paths import check_report_paths

    files = {"--report": output.report, "--sarif": output.sarif, "--json": output.json_file}
    if output.force and not output.in_place and not any(files.values()):
        raise BadValue("--force is for --in-place and for reports.")
    check_report_paths(path, files, output.out, output.force)


def migrate_files(path: Path, options: Options, jobs: int, quiet: bool) -> Outcome:
    """Migrate a project with a progress bar; refuse a path without Python files."""
    from viaduct.migration.run import migrate_project
    from viaduct.migration.walk import printable_path
    from viaduct.terminal import show_progress

    command = shlex.join(["viaduct", *sys.argv[1:]])
    try:
        with show_progress("files", quiet) as progress:
            outcome = migrate_project(path, options, jobs, command, progress)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would only add a traceback
        print("viaduct migrate: interrupted; nothing was written.", file=sys.stderr)
        raise typer.Exit(130) from None
    for file in outcome.files:
        if file.traceback:
            print(f"{printable_path(file.path)}:\n{file.traceback}", file=sys.stderr)
    if outcome.walk.is_single_script:
        check_script(path, outcome)
    if not outcome.files and not outcome.unread:
        raise BadValue(f"{printable_path(path)} has no Python file.", "Give the folder in which the scripts are.")
    return outcome


def check_script(path: Path, outcome: Outcome) -> None:
    """Raise BadValue if the project is one script that cannot be read or parsed."""
    from viaduct.migration.walk import printable_path

    if outcome.walk.skipped:
        raise BadValue(f"{printable_path(path)} {outcome.walk.skipped[0].reason}.", "Give a script that you may read.")
    for file in outcome.files:
        if file.unread_reason and not file.traceback:
            remedy = (
                f"{file.remedy[0].upper()}{file.remedy[1:]}; then migrate it."
                if file.remedy
                else "It was left as it is."
            )
            raise BadValue(f"{printable_path(path)}, {file.unread_reason}.", remedy)


def warn_without_git(outcome: Outcome) -> None:
    """Refuse files whose changes git could not undo; without a git repository only warn."""
    from viaduct.migration.writing import check_clean

    if outcome.changed_files and not check_clean(outcome):
        print("Note: this is not a git repository; the changes can be undone only with your own copy.", file=sys.stderr)


def write_files(outcome: Outcome, output: Output) -> None:
    from viaduct.migration.inplace import write_in_place
    from viaduct.migration.start_scripts import render_start_scripts
    from viaduct.migration.writing import write_out

    if output.in_place:
        write_in_place(outcome)
    if output.out is not None:
        write_out(outcome, output.out, render_start_scripts(outcome))


def write_reports(outcome: Outcome, output: Output) -> None:
    from viaduct.cluster.generate import write_text_file

    try:
        if output.report is not None:
            from viaduct.migration import report as pages

            pages.write(outcome, output.report, output.lang)
        if output.sarif is not None:
            from viaduct.migration.sarif import as_sarif

            write_text_file(as_sarif(outcome, output.lang), output.sarif, force=True)
        if output.json_file is not None:
            from viaduct.migration.jsonreport import as_json

            write_text_file(as_json(outcome, output.lang), output.json_file, force=True)
    except OSError as error:
        raise BadValue(f"{error.filename} cannot be written: {error.strerror}.") from error


def print_outcome(outcome: Outcome, output: Output) -> None:
    from viaduct.migration import terminal
    from viaduct.migration.walk import printable_path

    console = terminal.make_console()
    terminal.show_unread(console, outcome, output.lang)
    if not output.quiet:
        if not (output.out or output.in_place or output.check):
            terminal.show_diffs(console, outcome)
        terminal.show_findings(console, outcome, output.lang)
        terminal.show_skipped(console, outcome, output.lang)
    if output.check:
        for file in outcome.files_to_write:
            print(f"would {'change' if file.before else 'add'} {printable_path(file.path)}")
    terminal.show_summary(console, outcome, output.lang)
    if not output.check and (outcome.changed_files or output.out is not None or output.in_place):
        print(describe_written(outcome, output), file=sys.stderr)


def describe_written(outcome: Outcome, output: Output) -> str:
    """Return the last line of the output: which files were written, if any."""
    from viaduct.migration.summary import plural
    from viaduct.migration.walk import printable_path

    if output.out is not None:
        return f"Written: {output.out}"
    if not output.in_place:
        return "No migrated file was written; --out DIR or --in-place writes them."
    if not outcome.changed_files:
        return "Nothing was changed."
    if len(outcome.files_to_write) == 1:
        return f"Written: {printable_path(outcome.root / outcome.files_to_write[0].path)}"
    return f"Written: {plural(len(outcome.files_to_write), 'file')} in {printable_path(outcome.root)}"


def get_exit_code(outcome: Outcome, output: Output) -> int:
    """Return 1 if files could not be read, for changes with --check, and for open reviews with --strict; else 0."""
    needs_review = output.strict and bool(outcome.unfinished_findings)
    return 1 if needs_review or outcome.unread or (output.check and outcome.changed_files) else 0
