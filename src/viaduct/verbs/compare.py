"""viaduct compare"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from viaduct.comparison.drift import Drift, Options
    from viaduct.comparison.measuring import Measured

WORST_ROWS = 8  # rows of the printed table


def main(
    left: Annotated[Path, typer.Argument(help="Candidate, from the accelerator: a dump, or a run.")],
    right: Annotated[Path, typer.Argument(help="Reference (golden): a dump, or a run.")],
    out: Annotated[Path | None, typer.Option(help="Folder for drift.csv, report.html and summary.json.")] = None,
    graph: Annotated[
        Path | None, typer.Option(help="Compiled graph of the candidate: ge_proto_…_Build.txt, or JSON.")
    ] = None,
    graph_right: Annotated[
        Path | None, typer.Option(help="Compiled graph of the reference, if that is an NPU dump too.")
    ] = None,
    rules: Annotated[Path | None, typer.Option(help="File that maps names of one side to names of the other.")] = None,
    steps: Annotated[str | None, typer.Option(help="Only these steps: 0,5,10-12.", show_default="all")] = None,
    only: Annotated[str, typer.Option(help="Only operators with matching names: 'layer3.*'.")] = "",
    cosine: Annotated[float | None, typer.Option(help="Smallest accepted cosine similarity.")] = None,
    euclid: Annotated[float | None, typer.Option(help="Largest accepted relative Euclidean distance.")] = None,
    max_abs: Annotated[float | None, typer.Option(help="Largest accepted absolute error.")] = None,
    kld: Annotated[
        Literal["book", "floored"],
        typer.Option(help="KL divergence. book: as in the CANN documents, may be Inf; floored: always finite."),
    ] = "book",
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the first divergence, its inputs, the likely cause, what to try.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(help="Worker processes that compare tensors.", min=1, show_default="one for each core"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the summary, as JSON.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Write into a folder that contains other files.")] = False,
) -> None:
    """Find the first operator where two dumps differ.

    Thresholds depend on the data type. If --cosine, --euclid or --max-abs is given, only the given ones count. If both
    sides are runs and not both have a dump, their loss curves are compared.

    Exit code 0: all tensors are good, flagged or new. 1: some are bad or could not be compared. 2: none was compared.
    """
    from viaduct.comparison.curves import has_curve
    from viaduct.comparison.output import check_output_folder

    options = read_options(graph, graph_right, rules, steps, only, (cosine, euclid, max_abs), kld, workers)
    if out is not None:
        check_output_folder(out, force)
    if has_curve(left) and has_curve(right) and not ((left / "dump").is_dir() and (right / "dump").is_dir()):
        code = compare_runs(left, right, out, as_json)
    else:
        code = compare_dumps(left, right, options, out, explain, as_json)
    raise typer.Exit(code)


def read_options(
    graph: Path | None,
    graph_right: Path | None,
    rules: Path | None,
    steps: str | None,
    only: str,
    limits: tuple[float | None, float | None, float | None],
    kld: Literal["book", "floored"],
    workers: int | None,
) -> Options:
    """Check the flags and return them as options of the comparison."""
    from viaduct.comparison.drift import Options
    from viaduct.comparison.naming import parse_steps
    from viaduct.comparison.thresholds import thresholds_from_flags
    from viaduct.errors import BadValue

    cosine, euclid, max_abs = limits
    if cosine is not None and not -1 <= cosine <= 1:
        raise BadValue(f"--cosine is {cosine}; it must be from -1 to 1.")
    for flag, value in (("euclid", euclid), ("max-abs", max_abs)):
        if value is not None and not 0 <= value < math.inf:
            raise BadValue(f"--{flag} is {value}; it must be 0 or more.")
    for flag, path in (("graph", graph), ("graph-right", graph_right), ("rules", rules)):
        if path is not None and not path.is_file():
            raise BadValue(f"--{flag} {str(path)!r} is not a file.", "Give the path of the file.")
    chosen = None if steps is None else parse_steps(steps, "--steps")
    return Options(graph, graph_right, rules, chosen, only, thresholds_from_flags(*limits), kld, workers)


def compare_dumps(left: Path, right: Path, options: Options, out: Path | None, explain: bool, as_json: bool) -> int:
    from viaduct.comparison.drift import compare
    from viaduct.comparison.output import write_drift
    from viaduct.comparison.summary import make_summary

    drift = compare(left, right, options, track_progress)
    record = make_summary(drift)
    if out is not None:
        write_drift(drift, record, out)
    if as_json:
        print(json.dumps(record, indent=1))
    else:
        print_drift(drift, out, explain)
    return drift.exit_code


def track_progress(measured: Iterable[Measured], total: int) -> Iterable[Measured]:
    """Show a progress bar for the measured tensors if stderr is a terminal."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(measured, "comparing", total=total, console=console, transient=True, disable=not console.is_terminal)


def print_drift(drift: Drift, out: Path | None, explain: bool) -> None:
    """Print counts, the worst tensors and the explanation."""
    from viaduct.comparison.text_report import describe_explanation, make_counts_table, make_worst_table
    from viaduct.terminal import make_console, print_table

    note_console, console = make_console(stderr=True), make_console()
    for note in drift.notes:
        print_text(note_console, f"note: {note}")
    print_table(make_counts_table(drift), console)
    worst = make_worst_table(drift, WORST_ROWS)
    if worst is not None:
        print_table(worst, console)
    print_text(console, describe_explanation(drift, explain))
    if out is not None:
        print_text(console, f"{out / 'report.html'} shows all of it; {out / 'drift.csv'} has the rows.")


def print_text(console: Console, text: str) -> None:
    """Print a text without breaking its lines; a name in a dump cannot control the terminal."""
    from viaduct.terminal import escape_controls

    console.print(escape_controls(text, keep="\n"), soft_wrap=True)


def compare_runs(left: Path, right: Path, out: Path | None, as_json: bool) -> int:
    from viaduct.comparison.curves import compare_curves
    from viaduct.comparison.curves_page import write_curves_report
    from viaduct.comparison.output import write_output
    from viaduct.comparison.summary import make_curve_summary
    from viaduct.comparison.text_report import capitalise
    from viaduct.terminal import make_console

    curves = compare_curves(left, right)
    record = make_curve_summary(curves)
    if out is not None:
        write_output(out, record, {"report.html": lambda path: write_curves_report(path, curves)})
    if as_json:
        print(json.dumps(record, indent=1))
    else:
        note_console = make_console(stderr=True)
        print_text(note_console, "Not both runs have a dump; their loss curves are compared.")
        for note in curves.notes:
            print_text(note_console, f"note: {note}")
        print_text(make_console(), capitalise(curves.headline))
    return curves.exit_code
