"""viaduct train"""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from viaduct.errors import BadValue
from viaduct.file_urls import resolve_file_url
from viaduct.terminal import print_note
from viaduct.verbs._grouped_help import GroupedCommand
from viaduct.verbs._recipe_flags import HEADINGS, INSPECTION, RANKS, RUN, SCHEDULE, with_recipe_flags
from viaduct.verbs._train_arguments import Arguments, count_ranks, read_arguments

if TYPE_CHECKING:
    from viaduct.recipes import Recipe


class Command(GroupedCommand):
    """Command with the headings of `train --help`."""

    headings = HEADINGS


RunOption = functools.partial(typer.Option, rich_help_panel=RUN)
ScheduleOption = functools.partial(typer.Option, rich_help_panel=SCHEDULE)
RankOption = functools.partial(typer.Option, rich_help_panel=RANKS)
InspectionOption = functools.partial(typer.Option, rich_help_panel=INSPECTION)


@with_recipe_flags
def main(
    recipe: Annotated[
        str, typer.Argument(help="Name of a recipe (see --list) or your own recipe file; without it, resume --run.")
    ] = "",
    listing: Annotated[bool, RunOption("--list", help="Show the recipes and stop.")] = False,
    as_json: Annotated[bool, RunOption("--json", help="With --list: as JSON.")] = False,
    data: Annotated[Path | None, RunOption(help="Folder of the recipe's data.", callback=resolve_file_url)] = None,
    device: Annotated[str, RunOption(help="auto, cpu, cuda, npu, mlu; or one card: cuda:1.")] = "auto",
    run: Annotated[Path | None, RunOption(help="Directory of the run.", show_default="runs/RECIPE")] = None,
    resume: Annotated[
        Literal["auto", "never", "must"], RunOption(help="auto: resume if the run has a checkpoint.")
    ] = "auto",
    settings: Annotated[
        list[str] | None,
        RunOption("--set", help="Change any field of the recipe; may be repeated.", metavar="FIELD=VALUE"),
    ] = None,
    bank: Annotated[
        Path | None,
        RunOption(
            help="Bank of tuned operators (`viaduct tune`); none: use no bank.",
            show_default="TUNE_BANK_PATH, else the user's",
            metavar="DIR",
        ),
    ] = None,
    watch: Annotated[bool, RunOption("--watch", help="Serve a live page of the run, on this machine only.")] = False,
    watch_port: Annotated[
        int | None,
        RunOption(min=0, max=65535, help="With --watch: port of the page.", show_default="any free port", metavar="N"),
    ] = None,
    batch_per_rank: Annotated[
        int | None, ScheduleOption(min=1, help="Batch of each rank; the global batch is this times the ranks.")
    ] = None,
    lr_per_rank: Annotated[
        float | None, ScheduleOption(help="The peak learning rate is this times the ranks.", metavar="RATE")
    ] = None,
    ranks: Annotated[
        int | None, RankOption(help="Number of ranks on this machine, each on its own device.", show_default="1")
    ] = None,
    profile: Annotated[
        str | None, InspectionOption(help="Profile these steps to RUN/profile: 100-120.", metavar="FIRST-LAST")
    ] = None,
    dump_steps: Annotated[
        str | None, InspectionOption(help="Dump the tensors of these steps to RUN/dump: 0,5,10-12.", metavar="LIST")
    ] = None,
    **fields: Any,
) -> None:
    """Train a recipe, or resume a run that was interrupted.

    Ctrl-C writes a checkpoint after the current step and ends; the same command, or `viaduct train --run DIR`,
    resumes. A finished run is trained further only with a larger --steps or --epochs.
    """
    options = {name: value for name, value in locals().items() if name != "fields"} | fields
    if listing:
        return show_recipes(as_json)
    if (options["lr"] or "").strip().lower() == "find":
        return find_learning_rate(options)
    return train_or_launch(read_arguments(options, count_ranks(ranks)), ranks)


def find_learning_rate(options: dict[str, Any]) -> None:
    """Measure a suitable learning rate for the recipe, without starting or resuming a run."""
    if count_ranks(options["ranks"]) > 1:
        raise BadValue("--lr find measures on one rank.", "Leave --ranks out; the rate is that of the global batch.")
    if options["lr_per_rank"] is not None:
        raise BadValue("--lr find and --lr-per-rank contradict each other.", "Give one of them.")
    arguments = read_arguments({**options, "lr": None}, 1)
    from viaduct.run_files import RATE_PAGE
    from viaduct.runs.rate_range import render_text, suggest_rate, write_range_page
    from viaduct.training.rate_finder import STEPS, measure_rates

    measured = measure_rates(arguments.make_request(), int(options["steps"] or STEPS))
    suggestion = suggest_rate(measured.rates, measured.losses)
    print(render_text(measured.rates, suggestion))
    if measured.interrupted:
        raise typer.Exit(130)
    page = arguments.run / RATE_PAGE
    write_range_page(page, arguments.loaded.name, measured.rates, measured.losses, suggestion)
    if suggestion.rate is not None:
        print_note(f"Train with it: {format_rate_flags(arguments.loaded.recipe, suggestion.rate)}")
    print_note(f"Curve: {page}")


def format_rate_flags(recipe: Recipe, rate: float) -> str:
    """Return the flags that set the peak learning rate; LarsPolynomial multiplies its own peak by --lr."""
    if type(recipe.schedule).__name__ == "LarsPolynomial":
        return f"--set schedule.peak={rate:g} --lr 1"
    return f"--lr {rate:g}"


def check_command(command: list[str], ranks: int, local_ranks: int, has_rank_0: bool) -> list[str]:
    """Check the arguments of `viaduct train` before several ranks are started; raise the errors found.

    Returns the lines about a run that has already finished, otherwise an empty list. `local_ranks` is the number of
    ranks on this machine. Only the machine with rank 0 checks the run directory.
    """
    parsed: list[Arguments] = []

    @functools.wraps(main)  # so that it has the flags of `main`
    def parse(**options: Any) -> None:
        parsed.append(read_arguments(options, ranks))

    verb = typer.Typer(add_completion=False, rich_markup_mode=None)
    verb.command("train")(parse)
    typer.main.get_command(verb).main(command, prog_name="viaduct train", standalone_mode=False)
    if not parsed:  # --help was given and has been printed
        return []
    return check_ranks(parsed[0], ranks, local_ranks, has_rank_0)


def train_or_launch(arguments: Arguments, ranks: int | None) -> None:
    """Train in this process; with --ranks start the ranks, unless this process is one of them."""
    if ranks is not None and not is_rank(ranks):
        from viaduct.cluster.launch import check_rank_count, quiet_import, run_local

        check_rank_count(ranks)
        with quiet_import():
            finished = check_ranks(arguments, ranks, ranks)
        if finished:
            print_note("\n".join(finished))
            return
        raise typer.Exit(run_local(sys.argv[sys.argv.index("train") :], ranks))

    # torch is imported from here on, after the flags have been checked.
    from viaduct.training.session import run_training

    outcome = run_training(arguments.make_request())
    if not outcome.finished:
        raise typer.Exit(128 + (outcome.signal or 0))


def check_ranks(arguments: Arguments, ranks: int, local_ranks: int, has_rank_0: bool = True) -> list[str]:
    """Check the parsed arguments as `check_command` does, with the same result."""
    from viaduct import devices
    from viaduct.reporting.page_server import check_port
    from viaduct.training.session import check_before_start
    from viaduct.training.starting import describe_finished, refuse_or_find_finished

    devices.check_ranks(arguments.device, local_ranks)
    request = arguments.make_request()
    check_before_start(request, ranks)
    if has_rank_0 and refuse_or_find_finished(request):
        return list(describe_finished(request))
    if has_rank_0 and arguments.watch is not None:
        check_port(arguments.watch, "--watch-port")
    return []


def is_rank(ranks: int) -> bool:
    """Return True if this process is a rank that a launcher started; refuse a --ranks that contradicts the launcher."""
    local_ranks = os.environ.get("LOCAL_WORLD_SIZE")
    if "RANK" in os.environ and local_ranks is not None and local_ranks != str(ranks):
        raise BadValue(
            f"--ranks {ranks}, but this is one of {local_ranks} ranks on this machine (LOCAL_WORLD_SIZE).",
            "Leave --ranks out where torchrun or `viaduct launch` starts the ranks.",
        )
    return "RANK" in os.environ


def show_recipes(as_json: bool) -> None:
    from viaduct.recipes import load, names

    rows = [
        (loaded.name, loaded.summary, loaded.recipe.expects.percent if loaded.recipe.expects else None)
        for loaded in map(load, names())
    ]
    if as_json:
        keys = ("name", "summary", "expected_top1_percent")
        print(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=1))
        return
    from rich.table import Table

    from viaduct.terminal import print_table

    table = Table("recipe", "what it is", "expect", box=None, pad_edge=False)
    for name, summary, percent in rows:
        table.add_row(name, summary, "" if percent is None else f"{percent:g} % top-1")
    print_table(table)
