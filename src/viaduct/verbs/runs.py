"""viaduct runs"""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from viaduct.errors import BadValue
from viaduct.verbs._grouped_help import AsJson, DefaultGroup, Subcommands

if TYPE_CHECKING:
    from viaduct.runs.facts import RunFacts
    from viaduct.runs.listing import Listing

ROWS_ON_TERMINAL = 50


class ListByDefault(DefaultGroup):
    """Group whose subcommand `list` may be left out: `viaduct runs DIR` means `viaduct runs list DIR`."""

    default = "list"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        asks_help = "--help" in args and not set(args) & set(self.commands)
        return super().parse_args(ctx, args if asks_help else self.prepend_subcommand(args))


app = Subcommands(
    "List the runs below folders (runs/ by default): `viaduct runs [DIR …]`; show, compare and export them.",
    cls=ListByDefault,
    no_args_is_help=False,
)
Run = Annotated[Path, typer.Argument(help="A run's directory.")]
Dirs = Annotated[
    list[Path] | None,
    typer.Argument(help="Runs, or folders that hold some at any depth.", show_default="runs", metavar="DIR"),
]
Filters = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        help="Only runs that meet this condition: 'recipe=resnet*', 'top1>90', 'optimizer.lr<=0.1'; may be repeated.",
        metavar="CONDITION",
        show_default=False,
    ),
]


@app.command("list")
def list_table(
    dirs: Dirs = None,
    as_json: AsJson = False,
    sort: Annotated[
        str | None,
        typer.Option(
            help="Sort by a field: top1, loss, images_per_s, name, optimizer.lr; -top1 reverses the order.",
            metavar="FIELD",
            show_default="newest first",
        ),
    ] = None,
    conditions: Filters = None,
    every: Annotated[
        bool,
        typer.Option("--all", help="Show all runs on a terminal too; name all that are damaged or unreadable."),
    ] = False,
) -> None:
    """List runs: recipe, data, code, device, steps, best and last top-1, images/s, state, age.

    A run is running if a process holds its lock. Folders that are incomplete, damaged or unreadable are named below the
    table with the reason.
    """
    from viaduct.runs.choosing import sort_runs
    from viaduct.runs.table import render_damage, render_problems, render_table, to_json

    listing, runs = collect(dirs, conditions)
    if sort is not None:
        runs = sort_runs(runs, sort)
    if as_json:
        print(to_json(listing, runs))
        return
    print(render_table(runs, ROWS_ON_TERMINAL if sys.stdout.isatty() and not every else None))
    if damage := render_damage(runs, every):
        print(damage)
    if listing.problems:
        print(render_problems(listing.problems, every))
    for note in listing.notes:
        print(f"note: {note}", file=sys.stderr)


def collect(dirs: list[Path] | None, conditions: list[str] | None) -> tuple[Listing, list[RunFacts]]:
    """Return the listing of the folders, and its runs that pass the filters.

    `--filter A B` puts B among the folders, so a missing folder whose name looks like a condition is a filter.
    """
    from viaduct.runs.choosing import is_condition, parse_conditions
    from viaduct.runs.listing import list_runs, require_runs

    paths = dirs or []
    texts = list(conditions or [])
    if texts:
        texts += [str(path) for path in paths if is_condition(str(path)) and not path.exists()]
    roots = [path for path in paths if str(path) not in texts]
    listing = list_runs(roots)
    require_runs(listing, roots)
    parsed = parse_conditions(texts, listing.runs)
    return listing, [run for run in listing.runs if all(condition.is_met(run) for condition in parsed)]


@app.command()
def best(
    dirs: Dirs = None,
    by: Annotated[str, typer.Option(help="top1, last, loss or images_per_s.", metavar="MEASURE")] = "top1",
    top: Annotated[int, typer.Option(help="Number of runs to show.", min=1)] = 1,
    conditions: Filters = None,
    as_json: AsJson = False,
) -> None:
    """Show the best run by top-1, loss or speed. Runs on noise (--data synthetic) are compared by speed only."""
    from viaduct.runs.choosing import describe_best, find_best
    from viaduct.runs.table import build_record, render_table

    runs = collect(dirs, conditions)[1]
    ranking = find_best(runs, by, top)
    if not ranking.runs:
        left_out = f"{ranking.without_value:,} have no value, {ranking.on_noise:,} were trained on noise"
        raise BadValue(f"none of {len(runs):,} runs can be compared by {by}: {left_out}.")
    if as_json:
        print(json.dumps([build_record(run) for run in ranking.runs], indent=1))
        return
    print(render_table(ranking.runs))
    print("\n".join(describe_best(ranking, by)))


@app.command()
def show(run: Run, as_json: AsJson = False) -> None:
    """Show one run: facts, curves, last evaluations, and a diagnosis of the learning rate from its loss curve."""
    from viaduct.runs.listing import open_run
    from viaduct.runs.showing import render_run
    from viaduct.runs.table import build_record

    facts = open_run(run)
    print(json.dumps(build_record(facts), indent=1) if as_json else render_run(facts))


@app.command()
def diff(
    a: Annotated[Path, typer.Argument(help="A run.")],
    b: Annotated[Path, typer.Argument(help="Another run.")],
    as_json: AsJson = False,
) -> int:
    """Show the differences of two runs: recipe, data, code, machine, losses, results.

    The field that most likely matters comes first. If the folder has runs of the same recipe with other seeds, the
    final difference is compared with their spread. Exit code 0: no difference was found; 1: they differ.
    """
    from viaduct.json_records import finite_or_null
    from viaduct.runs.differences import diff_runs
    from viaduct.runs.listing import open_run

    differences = diff_runs(open_run(a), open_run(b))
    if as_json:
        print(json.dumps(finite_or_null(differences.build_record()), indent=1))
    else:
        print("\n".join(differences.render_lines()))
    return 1 if differences.differs else 0


@app.command()
def lineage(
    run: Run,
    within: Annotated[
        list[Path] | None,
        typer.Option(
            "--in", help="Folder in which to look for ancestors.", show_default="the folder that contains the run"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the runs that a run's weights came from, and the data. Moved runs are found by id or checksum."""
    from viaduct.runs.lineage import render_tree, to_record, trace_lineage
    from viaduct.runs.listing import list_runs, open_run

    roots = within or [run.absolute().parent]
    node = trace_lineage(open_run(run), list_runs(roots).runs)
    print(json.dumps(to_record(node), indent=1) if as_json else render_tree(node))


@app.command()
def page(
    dirs: Dirs = None,
    out: Annotated[Path, typer.Option(help="HTML file to write.", metavar="FILE")] = Path("runs.html"),
    conditions: Filters = None,
) -> None:
    """Draw runs on one page: overlaid curves, hyper-parameters against results, filters, table, lineage."""
    from viaduct.data.output_files import check_output
    from viaduct.reporting import write_page
    from viaduct.runs.page import build_page

    check_output(out, ".html", b"<!doctype html>", "a page", "--out")
    listing, runs = collect(dirs, conditions)
    folders = ", ".join(str(path) for path in dirs or [Path("runs")])
    write_page(build_page(runs, listing.problems, folders), out)
    print(f"wrote {len(runs):,} runs to {out}", file=sys.stderr)


@app.command()
def watch(
    folder: Annotated[Path, typer.Argument(help="A run, or a folder of runs.", metavar="RUN|DIR")] = Path("runs"),
    port: Annotated[int, typer.Option(help="Port; 0: any free one.", min=0, max=65535)] = 0,
) -> None:
    """Serve a live page of a run, or of all runs of a folder, on 127.0.0.1; Ctrl-C ends it."""
    import threading

    from viaduct.runs.finding import check_root
    from viaduct.runs.listing import list_runs, require_runs
    from viaduct.runs.watching import open_page

    check_root(folder)
    require_runs(list_runs([folder]), [folder])
    with open_page(folder, port) as served:
        print(f"Watch {folder} at {served.url} (Ctrl-C ends it)", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


@app.command()
def export(
    dirs: Dirs = None,
    to: Annotated[
        Literal["csv", "mlflow"], typer.Option(help="csv: a row for each run. mlflow: a folder that MLflow can open.")
    ] = "csv",
    out: Annotated[
        Path | None, typer.Option(help="The CSV file, or the new folder for MLflow.", show_default=False)
    ] = None,
    conditions: Filters = None,
) -> None:
    """Export runs as CSV, or as an MLflow file store with parameters, metrics by step, tags and links to the files."""
    from viaduct.data.output_files import check_output
    from viaduct.runs.mlflow_export import check_store, write_store
    from viaduct.runs.table import write_csv

    if out is None:
        raise BadValue("--out is missing.", f"Give {'--out runs.csv' if to == 'csv' else '--out mlruns'}.")
    if to == "csv":
        check_output(out, ".csv", b"path,", "a table of runs", "--out")
    else:
        check_store(out)
    runs = collect(dirs, conditions)[1]
    if to == "csv":
        write_csv(runs, out)
        print(f"wrote {len(runs):,} runs to {out}", file=sys.stderr)
        return
    unlinked = write_store(runs, out)
    print(f"wrote {len(runs):,} runs to {out}; open it with either of", file=sys.stderr)
    print(f"  MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {shlex.quote(str(out))}", file=sys.stderr)
    print(f"  mlflow migrate-filestore --source {shlex.quote(str(out))} --target sqlite:///mlflow.db", file=sys.stderr)
    if unlinked:
        print(f"of {unlinked:,} runs not all files could be linked; the tag viaduct.path names them", file=sys.stderr)
