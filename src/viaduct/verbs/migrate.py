"""viaduct migrate"""

from __future__ import annotations

import dataclasses
import os
import shlex
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from viaduct.cards.npu import DEFAULT_RANK_SOURCE, RankSource
from viaduct.errors import BadValue
from viaduct.verbs._grouped_help import GroupedCommand

if TYPE_CHECKING:
    from viaduct.migration.options import Options
    from viaduct.migration.results import Outcome

# Headings in the help
RULES, REPORTS = "Rules", "Reports"
TORCH, TF1 = "PyTorch scripts", "TensorFlow 1 scripts"
Command = GroupedCommand  # cli.py makes the verb's command of this class


def parse_path(text: str) -> Path:
    """Parse a path argument; refuse an empty one, which pathlib would take for the current folder."""
    if not text:
        raise BadValue("a path is empty.", "Perhaps a variable is not set? The current folder is `.`.")
    return Path(text)


def rule_option(help_text: str) -> Any:
    return typer.Option(help=help_text, rich_help_panel=RULES, metavar="RULE", show_default=False)


def report_option(help_text: str, *names: str, **settings: Any) -> Any:
    return typer.Option(*names, help=help_text, rich_help_panel=REPORTS, **settings)


def torch_option(help_text: str, *names: str) -> Any:
    return typer.Option(*names, help=help_text, rich_help_panel=TORCH)


def tf1_option(help_text: str, *names: str, **settings: Any) -> Any:
    return typer.Option(*names, help=help_text, rich_help_panel=TF1, **settings)


def main(
    path: Annotated[
        Path | None,
        typer.Argument(help="A script, a notebook or a project's folder.", show_default=False, parser=parse_path),
    ] = None,
    to: Annotated[
        Literal["npu", "mlu", "any"],
        typer.Option(help="The accelerator; any (PyTorch only): one source for cuda, npu, mlu and cpu."),
    ] = "npu",
    out: Annotated[
        Path | None,
        typer.Option(help="Write a migrated copy there, with start scripts.", metavar="DIR", parser=parse_path),
    ] = None,
    in_place: Annotated[bool, typer.Option("--in-place", help="Change the files themselves, all or none.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Ignore uncommitted changes in git; let reports replace other files.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 if something would change.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 if something needs manual review.")] = False,
    entry: Annotated[
        str,
        typer.Option(help="The script that is started.", metavar="FILE", show_default="found if it is the only one"),
    ] = "",
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            help="Do not change files that match this .gitignore pattern; may be repeated.",
            metavar="PATTERN",
            show_default=False,
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(help="Number of processes.", min=0, show_default="the cores")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only the summary.")] = False,
    mode: Annotated[
        Literal["rewrite", "patch"],
        torch_option("Rewrite, or only import the vendor's run-time patch and report what it cannot fix."),
    ] = "rewrite",
    data_parallel: Annotated[
        Literal["report", "unwrap", "ddp"],
        torch_option("nn.DataParallel: report it, remove it, or replace it by DistributedDataParallel."),
    ] = "report",
    int32_targets: Annotated[
        bool, torch_option("On the NPU: cast class labels to int32 before they are moved.", "--int32-targets")
    ] = False,
    start_up: Annotated[
        bool, torch_option("On the NPU: write the settings that are recommended for speed.", "--start-up")
    ] = False,
    distributed: Annotated[bool, tf1_option("For several devices.", "--distributed")] = False,
    precision: Annotated[
        str, tf1_option("precision_mode, or a mode of precision_mode_v2.", metavar="MODE", show_default=False)
    ] = "",
    loop: Annotated[int, tf1_option("iterations_per_loop: steps on the device per return to the host.")] = 1,
    style: Annotated[
        Literal["explicit", "wrapper"], tf1_option("Sessions: write out the options, or use the vendor's helpers.")
    ] = "explicit",
    imports: Annotated[
        Literal["explicit", "star"], tf1_option("Import names one by one, or with npu_init's star import.")
    ] = "explicit",
    rank: Annotated[
        RankSource, tf1_option(f"Source of rank and size: {DEFAULT_RANK_SOURCE}, or the environment.")
    ] = DEFAULT_RANK_SOURCE,
    reduction: Annotated[
        Literal["average", "sum"], tf1_option("With --distributed: average or sum of the ranks' gradients.")
    ] = "average",
    resources: Annotated[
        Literal["session", "plugin"], tf1_option("Start communication with a separate session, or with npu_plugin.")
    ] = "session",
    device: Annotated[
        Literal["remove", "cpu"], tf1_option("`with tf.device('/gpu:0')`: remove, or name the CPU.")
    ] = "remove",
    tpu: Annotated[
        Literal["convert", "keep"], tf1_option("TPUEstimator: convert, or keep with the TPU off.")
    ] = "convert",
    keep_defaults: Annotated[
        bool, tf1_option("Write out TensorFlow's defaults where those of NPURunConfig differ.", "--keep-defaults")
    ] = False,
    pad_predict: Annotated[
        bool, tf1_option("Pad the last batch of a prediction instead of dropping it.", "--pad-predict")
    ] = False,
    metrics_allreduce: Annotated[
        bool, tf1_option("Average evaluation metrics over the ranks.", "--metrics-allreduce")
    ] = False,
    dropout_layers: Annotated[
        bool, tf1_option("Also let Keras' dropout layers use the device's dropout.", "--dropout-layers")
    ] = False,
    preset: Annotated[str, tf1_option("Advice for one model: resnet-seed.", show_default=False)] = "",
    fusion_switch: Annotated[
        str,
        tf1_option("Path on the device of the graph compiler's fusion switches.", metavar="FILE", show_default=False),
    ] = "",
    profile: Annotated[str, tf1_option("Record profiles in this folder.", metavar="DIR", show_default=False)] = "",
    profile_points: Annotated[
        Path | None,
        tf1_option("With --profile: take fp_point and bp_point from this rehearsal's record.", metavar="RECORD"),
    ] = None,
    dump: Annotated[str, tf1_option("Dump tensors to this folder.", metavar="DIR", show_default=False)] = "",
    dump_step: Annotated[
        str, tf1_option("With --dump: steps to dump, such as 0|5-10.", metavar="STEPS", show_default=False)
    ] = "",
    show_rules: Annotated[
        bool, typer.Option("--list", help="List the rules with a summary of each.", rich_help_panel=RULES)
    ] = False,
    explain: Annotated[str | None, rule_option("Explain a rule, with an example.")] = None,
    only: Annotated[list[str] | None, rule_option("Apply only this rule; may be repeated.")] = None,
    skip: Annotated[list[str] | None, rule_option("Do not apply this rule; may be repeated.")] = None,
    report: Annotated[
        Path | None, report_option("Write a page with all changes.", metavar="HTML", parser=parse_path)
    ] = None,
    sarif: Annotated[
        Path | None, report_option("Write the findings as SARIF 2.1.0.", metavar="FILE", parser=parse_path)
    ] = None,
    json_file: Annotated[
        Path | None, report_option("Write everything as JSON.", "--json", metavar="FILE", parser=parse_path)
    ] = None,
    lang: Annotated[Literal["en", "zh"], report_option("Language of the findings.")] = "en",
) -> None:
    """Port PyTorch CUDA scripts and TensorFlow 1 scripts to the NPU or MLU by rewriting their text. Without --out or
    --in-place nothing is written: the changes are shown. Nothing of the project is imported or run.
    """
    values = dict(locals())
    if show_rules:
        return list_rules()
    if explain is not None:
        return explain_rule(explain)
    if path is None:
        raise BadValue("migrate what?", "Give a script or a folder: `viaduct migrate train.py`; or --list.")
    raise typer.Exit(run_migration(split_arguments(values)))


@dataclass(frozen=True)
class Arguments:
    """Options of the migration, and the flags that only this verb reads."""

    path: Path
    options: Options
    out: Path | None
    in_place: bool
    force: bool
    check: bool
    strict: bool
    jobs: int
    quiet: bool
    report: Path | None
    sarif: Path | None
    json_file: Path | None
    lang: str


def split_arguments(values: dict[str, Any]) -> Arguments:
    """Split the parameters of `main` into the options of the migration and the flags of this verb."""
    from viaduct.migration.checks import check_options
    from viaduct.migration.options import Options
    from viaduct.migration.profiling_points import read_points

    values = {**values, **{name: tuple(values[name] or ()) for name in ("only", "skip", "exclude")}}
    values["profile_points"] = ("", "") if values["profile_points"] is None else read_points(values["profile_points"])
    options = Options(**{field.name: values[field.name] for field in dataclasses.fields(Options)})
    check_options(options)
    names = {field.name for field in dataclasses.fields(Arguments)} - {"options"}
    return Arguments(options=options, **{name: values[name] for name in names})


def run_migration(arguments: Arguments) -> int:
    check_modes(arguments)
    check_reports(arguments)
    outcome = migrate_files(arguments.path, arguments.options, arguments.jobs, arguments.quiet)
    if arguments.in_place and not arguments.force:
        warn_without_git(outcome)
    write_files(outcome, arguments)
    write_reports(outcome, arguments)
    print_outcome(outcome, arguments)
    return get_exit_code(outcome, arguments)


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
        head = (
            f"{rule.name}: {rule.category}, for {', '.join(rule.targets)}, rows {' '.join(rule.rows)} of docs/rules.md"
        )
        print(("\n" if index else "") + f"{head}\n\n{rule.doc.strip()}")


def check_modes(arguments: Arguments) -> None:
    """Raise BadValue for contradictory flags."""
    modes = {"--out": arguments.out, "--in-place": arguments.in_place, "--check": arguments.check}
    chosen = [flag for flag, value in modes.items() if value]
    if len(chosen) > 1:
        raise BadValue(f"{' and '.join(chosen)} together.", "--out copies, --in-place changes, --check only asks.")
    if arguments.in_place:
        from viaduct.migration.writing import check_in_place

        check_in_place(arguments.path)
    if arguments.out is not None and os.path.exists(arguments.path):
        from viaduct.migration.writing import check_out

        check_out(arguments.path, arguments.out)


def check_reports(arguments: Arguments) -> None:
    """Raise BadValue, before any work, for reports that cannot be written."""
    from viaduct.migration.report_paths import check_report_paths

    files = {"--report": arguments.report, "--sarif": arguments.sarif, "--json": arguments.json_file}
    if arguments.force and not arguments.in_place and not any(files.values()):
        raise BadValue("--force is for --in-place and for reports.")
    check_report_paths(arguments.path, files, arguments.out, arguments.force)


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
    """Warn that changes in place cannot be undone with git."""
    from viaduct.migration.writing import check_clean

    if outcome.changed_files and not check_clean(outcome):
        print("Note: this is not a git repository; the changes can be undone only with your own copy.", file=sys.stderr)


def write_files(outcome: Outcome, arguments: Arguments) -> None:
    from viaduct.migration.inplace import write_in_place
    from viaduct.migration.start_scripts import render_start_scripts
    from viaduct.migration.writing import write_out

    if arguments.in_place:
        write_in_place(outcome)
    if arguments.out is not None:
        write_out(outcome, arguments.out, render_start_scripts(outcome))


def write_reports(outcome: Outcome, arguments: Arguments) -> None:
    from viaduct.cluster.generate import write_text_file

    try:
        if arguments.report is not None:
            from viaduct.migration import report as pages

            pages.write(outcome, arguments.report, arguments.lang)
        if arguments.sarif is not None:
            from viaduct.migration.sarif import as_sarif

            write_text_file(as_sarif(outcome, arguments.lang), arguments.sarif, force=True)
        if arguments.json_file is not None:
            from viaduct.migration.jsonreport import as_json

            write_text_file(as_json(outcome, arguments.lang), arguments.json_file, force=True)
    except OSError as error:
        raise BadValue(f"{error.filename} cannot be written: {error.strerror}.") from error


def print_outcome(outcome: Outcome, arguments: Arguments) -> None:
    from viaduct.migration import terminal
    from viaduct.migration.walk import printable_path

    console = terminal.make_console()
    terminal.show_unread(console, outcome, arguments.lang)
    if not arguments.quiet:
        if not (arguments.out or arguments.in_place or arguments.check):
            terminal.show_diffs(console, outcome)
        terminal.show_findings(console, outcome, arguments.lang)
        terminal.show_skipped(console, outcome, arguments.lang)
    if arguments.check:
        for file in outcome.files_to_write:
            print(f"would {'change' if file.before else 'add'} {printable_path(file.path)}")
    terminal.show_summary(console, outcome, arguments.lang)
    if not arguments.check and (outcome.changed_files or arguments.out is not None or arguments.in_place):
        print(describe_written(outcome, arguments), file=sys.stderr)


def describe_written(outcome: Outcome, arguments: Arguments) -> str:
    """Return the last line of the output: the written files, or a note that there are none."""
    from viaduct.migration.summary import plural
    from viaduct.migration.walk import printable_path

    if arguments.out is not None:
        return f"Written: {arguments.out}"
    if not arguments.in_place:
        return "No migrated file was written; --out DIR or --in-place writes them."
    if not outcome.changed_files:
        return "Nothing was changed: there is nothing to write."
    if len(outcome.files_to_write) == 1:
        return f"Written: {printable_path(outcome.root / outcome.files_to_write[0].path)}"
    return f"Written: {plural(len(outcome.files_to_write), 'file')} in {printable_path(outcome.root)}"


def get_exit_code(outcome: Outcome, arguments: Arguments) -> int:
    """Return 1 if files could not be read, for changes with --check, and for open reviews with --strict; else 0."""
    needs_review = arguments.strict and bool(outcome.unfinished_findings)
    return 1 if needs_review or outcome.unread or (arguments.check and outcome.changed_files) else 0
