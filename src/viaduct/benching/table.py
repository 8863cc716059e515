"""Terminal output of a measurement: speed of each variant, and time by kind."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from viaduct.benching.record import COLUMNS
from viaduct.errors import BadData
from viaduct.terminal import make_console, make_number_columns, print_table
from viaduct.training.output_streams import redirect_to_null


def print_record(record: dict[str, Any], json_file: Path | None) -> None:
    """Print the tables and remarks in one write. A closed pipe is ignored.

    Another error is raised as BadData; its hint names `json_file`, which has the figures, or --json.
    """
    text = render_record(record)
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        redirect_to_null(sys.stdout)
    except OSError as error:
        redirect_to_null(sys.stdout)
        hint = "--json FILE writes them to a file." if json_file is None else f"They are in {json_file}."
        raise BadData(f"the figures cannot be printed: {error.strerror}.", hint) from None


def render_record(record: dict[str, Any]) -> str:
    page = io.StringIO()
    console = make_console(file=page)
    console.print(f"{record['title']}; {record['machine']['description']}", soft_wrap=True)
    print_table(build_speed_table(record), console)
    if times := build_time_table(record):
        print_table(times, console)
    for line in list_remarks(record):
        console.print(line, soft_wrap=True)
    return page.getvalue()


def build_speed_table(record: dict[str, Any]) -> Table:
    """Return the table with one row for each variant."""
    title, *figures = COLUMNS
    table = Table(title, *make_number_columns(*figures), box=box.SIMPLE)
    for row in record["rows"]:
        table.add_row(*(row[column] for column in COLUMNS))
    return table


def build_time_table(record: dict[str, Any]) -> Table | None:
    """Return the table of time by kind, for ours and the fastest peer; None without a profile."""
    fastest_peer = min(record["peers"], key=lambda peer: peer["ms_per_step"], default=None)
    variants = [variant for variant in (record, fastest_peer) if variant and "ms" in variant["time"]]
    if not variants:
        return None
    table = Table("where a step's time goes", box=box.SIMPLE)
    for variant in variants:
        table.add_column(variant["variant"], justify="right")
    parts = [
        {**time["ms"], "host gaps": time["host_gaps_ms"], "data wait": time["data_wait_ms"]}
        for time in (variant["time"] for variant in variants)
    ]
    for name in dict.fromkeys(name for times in parts for name in times):
        cells = []
        for times, variant in zip(parts, variants, strict=True):
            ms = times.get(name, 0.0)
            cells.append(f"{ms:,.2f} ms {100 * ms / variant['ms_per_step']:5.1f} %")
        table.add_row(name, *cells)
    return table


def list_remarks(record: dict[str, Any]) -> list[str]:
    """Return the lines below the tables: peak rates, counted work, starts, notes, and peers that were left out."""
    best = record["ceilings"]
    lines = [
        f"At best, measured in this run: {best['bandwidth_bytes_per_s'] / 1e9:,.1f} GB/s (a large copy), "
        f"{best['matrix_flop_per_s'] / 1e12:,.3g} TFLOP/s (a large {record['precision']} matrix product)."
    ]
    if "flop" in record["counted"]:
        counted = record["counted"]
        lines.append(
            f"A step of ours: {counted['flop'] / 1e9:,.1f} GFLOP in convolutions and matrix products, at least "
            f"{counted['bytes_least'] / 1e9:,.2f} GB moved if all else is fused into these."
        )
    elif why := record["counted"].get("why_not"):
        lines.append(f"Not counted: {why}.")
    if why := record["time"].get("why_not"):
        lines.append(f"Where the time goes is not known: {why}.")
    if record["peers"] and record["data"] != "synthetic":
        lines.append("Peers have one batch of noise on the device; only ours reads data.")
    lines += record.get("starts_told", [])
    lines += record["notes"]
    lines += [f"Left out: {name}: {why}." for name, why in record["left_out"].items()]
    return lines
