"""viaduct migrate"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from viaduct.errors import BadValue

if TYPE_CHECKING:
    from viaduct.migration.options import Options
    from viaduct.migration.run import Outcome


def named(words: str) -> Path:
    """A path that was given: pathlib would take nothing for the current folder."""
    if not words:
        raise BadValue("a path is empty.", "Perhaps a variable is not set? The current folder is `.`.")
    return Path(words)


def main(
    path: Annotated[
        Path | None,
        typer.Argument(help="A script, a notebook or a project's folder.", show_default=False, parser=named),
    ] = None,
    to: Annotated[Literal["npu", "mlu", "any"], typer.Option(help="The accelerator.")] = "npu",
    out: Annotated[
        Path | None, typer.Option(help="Write a migrated copy there, with start scripts.", metavar="DIR", parser=named)
    ] = None,
    in_place: Annotated[bool, typer.Option("--in-place", help="Change the files themselves, all or none.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Though git has uncommitted changes; over a file that is no report.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 if something would change.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 if something is left for a person.")] = False,
    show_rules: Annotated[bool, typer.Option("--list", help="The rules, and what each does.")] = False,
    explain: Annotated[
        str | None, typer.Option(help="One rule: example, reason.", metavar="RULE", show_default=False)
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Only this rule; may be repeated.", metavar="RULE", show_default=False)
    ] = None,
    skip: Annotated[
        list[str] | None, typer.Option(help="Not this rule; may be repeated.", metavar="RULE", show_default=False)
    ] = None,
    distributed: Annotated[bool, typer.Option("--distributed", help="For several devices.")] = False,
    precision: Annotated[
        str, typer.Option(help="precision_mode, or a mode of precision_mode_v2.", metavar="MODE", show_default=False)
    ] = "",
    loop: Annotated[int, typer.Option(help="iterations_per_loop: steps on the device between visits of the host.")] = 1,
    style: Annotated[
        Literal["explicit", "wrapper"], typer.Option(help="Sessions: options written out, or the vendor's helpers.")
    ] = "explicit",
    imports: Annotated[
        Literal["explicit", "star"], typer.Option(help="Names one by one, or npu_init's star import.")
    ] = "explicit",
    rank: Annotated[
        Literal["hccl", "env"], typer.Option(help="Where rank and size come from: hccl, or the environment.")
    ] = "hccl",
    resources: Annotated[
        Literal["session", "plugin"],
        typer.Option(help="What starts communication: a session of its own, or npu_plugin."),
    ] = "session",
    device: Annotated[
        Literal["remove", "cpu"], typer.Option(help="`with tf.device('/gpu:0')`: remove, or name the CPU.")
    ] = "remove",
    tpu: Annotated[
        Literal["convert", "keep"], typer.Option(help="TPUEstimator: convert, or keep with the TPU off.")
    ] = "convert",
    keep_defaults: Annotated[
        bool, typer.Option("--keep-defaults", help="Write out TensorFlow's defaults where NPURunConfig has others.")
    ] = False,
    pad_predict: Annotated[
        bool, typer.Option("--pad-predict", help="Pad the last batch of a prediction instead of dropping it.")
    ] = False,
    metrics_allreduce: Annotated[
        bool, typer.Option("--metrics-allreduce", help="Average evaluation metrics over the ranks.")
    ] = False,
    dropout_layers: Annotated[
        bool, typer.Option("--dropout-layers", help="Also let Keras' dropout layers use the device's dropout.")
    ] = False,
    preset: Annotated[str, typer.Option(help="Advice for one model: resnet-seed.", show_default=False)] = "",
    profile: Annotated[str, typer.Option(help="Record profiles there.", metavar="DIR", show_default=False)] = "",
    dump: Annotated[str, typer.Option(help="Dump tensors there.", metavar="DIR", show_default=False)] = "",
    dump_step: Annotated[
        str, typer.Option(help="With --dump: which steps, such as 0|5-10.", metavar="STEPS", show_default=False)
    ] = "",
    entry: Annotated[
        str, typer.Option(help="The script that is started.", metavar="FILE", show_default="found if only one can be")
    ] = "",
    report: Annotated[
        Path | None, typer.Option(help="Write a page with all changes.", metavar="HTML", parser=named)
    ] = None,
    sarif: Annotated[
        Path | None, typer.Option(help="Write the findings as SARIF 2.1.0.", metavar="FILE", parser=named)
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write everything as JSON.", metavar="FILE", parser=named)
    ] = None,
    lang: Annotated[Literal["en", "zh"], typer.Option(help="The language of the findings.")] = "en",
    jobs: Annotated[int, typer.Option(help="Processes.", min=0, show_default="the cores")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only the summary.")] = False,
) -> None:
    """Carry TensorFlow 1 scripts to the NPU or MLU by rewriting their text. Without --out or --in-place nothing is
    written: the changes are shown. Nothing of the project is imported or run.
    """
    if show_rules:
        return list_rules()
    if explain is not None:
        return explain_rule(explain)
    if path is None:
        raise BadValue("migrate what?", "Give a script or a folder: `viaduct migrate train.py`; or --list.")
    from viaduct.migration.checks import check_options
    from viaduct.migration.options import Options

    options = Options(
        to=to,
        distributed=distributed,
        style=style,
        imports=imports,
        precision=precision,
        loop=loop,
        rank=rank,
        resources=resources,
        device=device,
        tpu=tpu,
        keep_defaults=keep_defaults,
        pad_predict=pad_predict,
        metrics_allreduce=metrics_allreduce,
        dropout_layers=dropout_layers,
        profile=profile,
        dump=dump,
        dump_step=dump_step,
        preset=preset,
        entry=entry,
        only=tuple(only or ()),
        skip=tuple(skip or ()),
    )
    check_options(options)
    reports = {"--report": report, "--sarif": sarif, "--json": json_file}
    check_modes(path, out, in_place, check)
    check_reports(path, reports, out, in_place, force)
    outcome = migrate(path, options, jobs)
    if in_place and not force:
        warn_without_git(outcome)
    write(outcome, out, in_place)
    write_reports(outcome, report, sarif, json_file, lang)
    show(outcome, out, in_place, check, quiet, lang)
    raise typer.Exit(exit_code(outcome, check, strict))


def list_rules() -> None:
    from viaduct.migration.catalogue import summary_of
    from viaduct.migration.rule import all_rules

    rules = sorted(all_rules(), key=lambda rule: rule.name)
    width = max(len(rule.name) for rule in rules)
    for rule in rules:
        when = "" if rule.on is None else " (when asked for)"
        print(f"{rule.name:<{width}}  {rule.kind:<11}  {summary_of(rule)}{when}")
    print(f"{len(rules)} rules; `viaduct migrate --explain RULE` shows one with its example.", file=sys.stderr)


def explain_rule(word: str) -> None:
    from viaduct.migration.catalogue import find

    for place, rule in enumerate(find(word)):
        head = f"{rule.name}: {rule.kind}, for {', '.join(rule.targets)}, rows {rule.spec}"
        print(("\n" if place else "") + f"{head}\n\n{rule.doc.strip()}")


def check_modes(path: Path, out: Path | None, in_place: bool, check: bool) -> None:
    chosen = [word for word, given in (("--out", out), ("--in-place", in_place), ("--check", check)) if given]
    if len(chosen) > 1:
        raise BadValue(f"{' and '.join(chosen)} together.", "--out copies, --in-place changes, --check only asks.")
    if out is not None:
        from viaduct.migration.writing import check_out

        if path.exists():
            check_out(path, out)


def check_reports(path: Path, reports: dict[str, Path | None], out: Path | None, in_place: bool, force: bool) -> None:
    from viaduct.migration.report_places import check_places

    if force and not in_place and not any(reports.values()):
        raise BadValue("--force is for --in-place and for reports.")
    check_places(path, reports, out, force)


def migrate(path: Path, options: Options, jobs: int) -> Outcome:
    from viaduct.migration.run import migrate_project

    outcome = migrate_project(path, options, jobs, shlex.join(["viaduct", *sys.argv[1:]]))
    for file in outcome.files:
        if file.traceback:
            print(f"{file.path}:\n{file.traceback}", file=sys.stderr)
    if not outcome.files:
        raise BadValue(f"{path} has no Python file.", "Give the folder in which the scripts are.")
    return outcome


def warn_without_git(outcome: Outcome) -> None:
    from viaduct.migration.writing import check_clean

    if outcome.changed and not check_clean(outcome):
        print("Note: this is no git repository, so there is no way back but your own copy.", file=sys.stderr)


def write(outcome: Outcome, out: Path | None, in_place: bool) -> None:
    from viaduct.migration.starting import start_scripts
    from viaduct.migration.writing import write_in_place, write_out

    if in_place:
        write_in_place(outcome)
    if out is not None:
        write_out(outcome, out, start_scripts(outcome))


def write_reports(outcome: Outcome, report: Path | None, sarif: Path | None, json_file: Path | None, lang: str) -> None:
    from viaduct.cluster.generate import write as write_whole

    try:
        if report is not None:
            from viaduct.migration import report as pages

            pages.write(outcome, report, lang)
        if sarif is not None:
            from viaduct.migration.sarif import as_sarif

            write_whole(as_sarif(outcome, lang), sarif, force=True)
        if json_file is not None:
            from viaduct.migration.jsonreport import as_json

            write_whole(as_json(outcome, lang), json_file, force=True)
    except OSError as error:
        raise BadValue(f"{error.filename} cannot be written: {error.strerror}.") from error


def show(outcome: Outcome, out: Path | None, in_place: bool, check: bool, quiet: bool, lang: str) -> None:
    from viaduct.migration import terminal
    from viaduct.migration.walk import shown

    console = terminal.make_console()
    if not quiet:
        if not (out or in_place or check):
            terminal.show_diffs(console, outcome)
        terminal.show_findings(console, outcome, lang)
        terminal.show_skipped(console, outcome, lang)
    if check:
        for file in outcome.changed:
            print(f"would change {shown(file.path)}")
    terminal.show_summary(console, outcome)
    if not check and (outcome.changed or out is not None or in_place):
        print(what_was_written(outcome, out, in_place), file=sys.stderr)


def what_was_written(outcome: Outcome, out: Path | None, in_place: bool) -> str:
    from viaduct.migration.summary import plural
    from viaduct.migration.walk import shown

    if out is not None:
        return f"Written: {out}"
    if not in_place:
        return "Nothing was written; --out DIR or --in-place does."
    if not outcome.changed:
        return "Nothing was changed: there is nothing to write."
    if len(outcome.changed) == 1:
        return f"Written: {shown(str(outcome.root / outcome.changed[0].path))}"
    return f"Written: {plural(len(outcome.changed), 'file')} in {shown(str(outcome.root))}"


def exit_code(outcome: Outcome, check: bool, strict: bool) -> int:
    left = strict and any(finding.status == "manual" for finding in outcome.findings)
    return 1 if left or (check and outcome.changed) else 0
