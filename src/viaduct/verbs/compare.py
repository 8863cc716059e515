"""viaduct compare"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from viaduct.comparison.drift import Drift, Options
    from viaduct.comparison.measuring import Measured

WORST = 8  # rows that are printed


def main(
    left: Annotated[Path, typer.Argument(help="What is doubted, the accelerator's: a dump, or a run.")],
    right: Annotated[Path, typer.Argument(help="The truth: a dump, or a run.")],
    out: Annotated[Path | None, typer.Option(help="Folder for drift.csv, report.html and summary.json.")] = None,
    graph: Annotated[
        Path | None, typer.Option(help="The left side's compiled graph: ge_proto_…_Build.txt, or JSON.")
    ] = None,
    graph_right: Annotated[Path | None, typer.Option(help="The right side's, where it is an NPU dump too.")] = None,
    rules: Annotated[Path | None, typer.Option(help="A file that says which name belongs to which.")] = None,
    steps: Annotated[str | None, typer.Option(help="Only these steps: 0,5,10-12.", show_default="all")] = None,
    only: Annotated[str, typer.Option(help="Only operators called like this: 'layer3.*'.")] = "",
    cosine: Annotated[float | None, typer.Option(help="Least cosine similarity; replaces the defaults.")] = None,
    euclid: Annotated[float | None, typer.Option(help="Largest relative Euclidean distance; replaces them.")] = None,
    max_abs: Annotated[float | None, typer.Option(help="Largest absolute error; replaces them.")] = None,
    kld: Annotated[str, typer.Option(help="How zeros count in the KL divergence: book or floored.")] = "book",
    explain: Annotated[
        bool, typer.Option("--explain", help="First divergence, its inputs, likely cause, what to try.")
    ] = False,
    workers: Annotated[int | None, typer.Option(help="Processes that measure.", show_default="one a core")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The summary as JSON, and nothing else.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Write into a folder that holds other things.")] = False,
) -> None:
    """Find the first operator where two dumps part ways; exit 0: they agree, 1: they do not, 2: could not compare.

    Thresholds depend on the dtype unless --cosine, --euclid or --max-abs are given; then only those count. Of two runs
    without dumps the loss curves are compared.
    """
    from viaduct.comparison.curves import has_curve
    from viaduct.comparison.output import check_output_folder

    options = choose_thresholds(graph, graph_right, rules, steps, only, (cosine, euclid, max_abs), kld, workers)
    if out is not None:
        check_output_folder(out, force)
    if has_curve(left) and has_curve(right) and not ((left / "dump").is_dir() and (right / "dump").is_dir()):
        code = compare_runs(left, right, out, as_json)
    else:
        code = compare_dumps(left, right, options, out, explain, as_json)
    raise typer.Exit(code)


def choose_thresholds(
    graph: Path | None,
    graph_right: Path | None,
    rules: Path | None,
    steps: str | None,
    only: str,
    limits: tuple[float | None, float | None, float | None],
    kld: str,
    workers: int | None,
) -> Options:
    """Return the thresholds of the flags, checked."""
    from viaduct.comparison.drift import Options
    from viaduct.comparison.naming import parse_steps
    from viaduct.comparison.thresholds import thresholds_from_flags
    from viaduct.errors import BadValue

    for flag, value, low, high in zip(
        ("cosine", "euclid", "max-abs"), limits, (-1, 0, 0), (1, math.inf, math.inf), strict=True
    ):
        if value is not None and not (low <= value <= high and math.isfinite(value)):  # NaN is not within
            raise BadValue(
                f"--{flag} is {value}.", f"Give a number from {low}" + (f" to {high}." if high == 1 else " on.")
            )
    if kld not in ("book", "floored"):
        raise BadValue(f"--kld is {kld!r}.", "Give book (a zero on the right gives Inf) or floored (always finite).")
    if workers is not None and workers < 1:
        raise BadValue(f"--workers is {workers}.", "Give 1 or more.")
    for flag, path in (("graph", graph), ("graph-right", graph_right), ("rules", rules)):
        if path is not None and not path.is_file():
            raise BadValue(f"--{flag} {str(path)!r} is not a file.", "Give the path of the file.")
    wanted = None if steps is None else parse_steps(steps, "--steps")
    return Options(graph, graph_right, rules, wanted, only, thresholds_from_flags(*limits), kld, workers)  # type: ignore[arg-type]


def compare_dumps(left: Path, right: Path, options: Options, out: Path | None, explain: bool, as_json: bool) -> int:
    """Compare two dumps; return the exit code."""
    from viaduct.comparison.drift import compare
    from viaduct.comparison.pages import write_drift
    from viaduct.comparison.summary import make_summary

    drift = compare(left, right, options, progress)
    record = make_summary(drift)
    if out is not None:
        write_drift(drift, record, out)
    if as_json:
        print(json.dumps(record, indent=1))
    else:
        print_drift(drift, out, explain)
    return drift.exit_code


def progress(found: Iterable[Measured], total: int) -> Iterable[Measured]:
    """Show a progress bar on stderr if it is a terminal."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(found, "comparing", total=total, console=console, transient=True, disable=not console.is_terminal)


def print_drift(drift: Drift, out: Path | None, explain: bool) -> None:
    """Print counts, the worst tensors and the explanation."""
    from viaduct.comparison.text_report import counts_table, explanation_text, worst_table
    from viaduct.terminal import make_console, print_table

    talk, console = make_console(stderr=True), make_console()
    for note in drift.notes:
        print_text(talk, f"note: {note}")
    print_table(counts_table(drift), console)
    worst = worst_table(drift, WORST)
    if worst is not None:
        print_table(worst, console)
    print_text(console, explanation_text(drift, explain))
    if out is not None:
        print_text(console, f"{out / 'report.html'} shows all of it; {out / 'drift.csv'} has the rows.")


def print_text(console: Console, text: str) -> None:
    """Print a text without breaking its lines."""
    from viaduct.comparison.text_report import printable

    console.print(printable(text), soft_wrap=True)


def compare_runs(left: Path, right: Path, out: Path | None, as_json: bool) -> int:
    """Compare the loss curves of two runs; return the exit code."""
    from viaduct.comparison.curves import compare_curves
    from viaduct.comparison.curves_page import write_curves_report
    from viaduct.comparison.output import write_output
    from viaduct.comparison.summary import make_curve_summary
    from viaduct.comparison.text_report import sentence
    from viaduct.terminal import make_console

    curves = compare_curves(left, right)
    record = make_curve_summary(curves)
    if out is not None:
        write_output(out, record, {"report.html": lambda path: write_curves_report(path, curves)})
    if as_json:
        print(json.dumps(record, indent=1))
    else:
        talk = make_console(stderr=True)
        print_text(talk, "Not both runs have a dump; their loss curves are compared.")
        for note in curves.notes:
            print_text(talk, f"note: {note}")
        print_text(make_console(), sentence(curves.headline))
    return curves.exit_code
