"""Tables on the terminal, and the same tables in a pipe or a file.

    console = make_console()
    print_table(Table("recipe", *figure_columns("top-1 %", "loss")), console)

A pipe or a file gets no colour codes, and every line is as long as it needs to be. On a narrow terminal columns of
words fold; figures stay whole, and where they do not fit side by side the terminal breaks the line. Nothing is cut off.
"""

from __future__ import annotations

import sys
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Column, Table

UNBOUNDED = 100_000  # columns: wider than any table
WORDS = 12  # columns that a column of words is given at least, if it needs them


def make_console(*, stderr: bool = False, file: IO[str] | None = None) -> Console:
    """Return a console that prints to stdout or stderr; `file` collects instead what would be printed there."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    terminal = stream.isatty()
    width = Console(file=stream).width if terminal else UNBOUNDED
    return Console(
        file=file or stream, force_terminal=terminal, width=width, highlight=False, markup=False, emoji=False
    )


def figure_columns(*names: str) -> list[Column]:
    """Return columns of figures: justified to the right, never folded."""
    from rich.table import Column

    return [Column(name, justify="right") for name in names]


def print_table(table: Table, console: Console | None = None) -> None:
    """Print a table without cutting anything off. Columns that are justified to the right hold figures."""
    console = console or make_console()
    for column in table.columns:
        column.overflow = "fold"
        column.no_wrap = column.justify == "right"
    width = console.width
    console.width = max(width, narrowest(table, console))
    console.print(table, crop=False)
    console.width = width


def narrowest(table: Table, console: Console) -> int:
    """Return the width below which figures would be cut."""
    from rich.measure import Measurement

    options = console.options.update(width=UNBOUNDED)
    least = 2
    for column in table.columns:
        cells = [Measurement.get(console, options, cell).maximum for cell in (column.header, *column.cells)]
        widest = max(cells)
        least += 4 + (widest if column.no_wrap else min(widest, WORDS))
    return least
