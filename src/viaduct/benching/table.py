"""A measurement on the terminal: who is how quick, and where the time goes."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from viaduct.benching.record import COLUMNS
from viaduct.errors import BadData
from viaduct.terminal import figure_columns, make_console, print_table
from viaduct.training.output_streams import redirect_to_null


def show(record: dict[str, Any], kept: Path | None = None) -> None:
    """Print it all at once; a reader who has left already misses nothing. `kept`: where the figures are, too."""
    text = drawn(record)
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        redirect_to_null(sys.stdout)
    except OSError as error:
        redirect_to_null(sys.stdout)
        instead = "--json FILE writes them to a file." if kept is None else f"They are in {kept}."
        raise BadData(f"the figures cannot be printed: {error.strerror}.", instead) from None


def drawn(record: dict[str, Any]) -> str:
    page = io.StringIO()
    console = make_console(file=page)
    console.print(f"{record['title']}; {record['machine']['description']}", soft_wrap=True)
    print_table(speeds(record), console)
    if times := where_time_goes(record):
        print_table(times, console)
    for line in remarks(record):
        console.print(line, soft_wrap=True)
    return page.getvalue()


def speeds(record: dict[str, Any]) -> Table:
    variant, *figures = COLUMNS
    table = Table(variant, *figure_columns(*figures), box=box.SIMPLE)
    for row in record["rows"]:
        table.add_row(*(row[column] for column in COLUMNS))
    return table


def where_time_goes(record: dict[str, Any]) -> Table | None:
    """Ours beside the quickest peer."""
    shown = [one for one in (record, quickest(record["peers"])) if one and "ms" in one["time"]]
    if not shown:
        return None
    table = Table("where a step's time goes", box=box.SIMPLE)
    for one in shown:
        table.add_column(one["variant"], justify="right")
    parts = [parts_of(one["time"]) for one in shown]
    for name in dict.fromkeys(name for found in parts for name in found):
        cells = [cell(found.get(name, 0.0), one["ms_per_step"]) for found, one in zip(parts, shown, strict=True)]
        table.add_row(name, *cells)
    return table


def quickest(peers: list[dict[str, Any]]) -> dict[str, Any] | None:
    return min(peers, key=lambda one: one["ms_per_step"], default=None)


def parts_of(time: dict[str, Any]) -> dict[str, float]:
    return {**time["ms"], "host gaps": time["host_gaps_ms"], "data wait": time["data_wait_ms"]}


def cell(milliseconds: float, step: float) -> str:
    return f"{milliseconds:,.2f} ms {100 * milliseconds / step:5.1f} %"


def remarks(record: dict[str, Any]) -> list[str]:
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
