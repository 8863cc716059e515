"""Print tables and notes to a terminal, pipe or file, with control characters escaped.

    console = make_console()
    print_table(Table("recipe", *make_number_columns("top-1 %", "loss")), console)

A pipe or a file gets no colour codes and lines of any length. On a narrow terminal text columns wrap, and number
columns do not. Nothing is cut off.

Names of files, tensors and classes may contain escape sequences. `start_escaping_output`, which every command calls
first, escapes them in everything that is printed, except in what rich prints, whose colours are escape sequences.
Therefore `print_table` escapes each cell.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Column, Table

UNBOUNDED_WIDTH = 100_000  # characters; wider than any table
MIN_TEXT_WIDTH = 12  # characters to which a text column may shrink
MAX_NAME_LENGTH = 400  # characters; longer names in a message are shortened
UNSAFE = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # C0 and C1 controls: escape sequences, line ends, backspace
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidirectional overrides, which reorder what is read
    "\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"  # invisible
    "\u2028\u2029"  # line and paragraph separators
    "\ud800-\udfff"  # bytes of a file name that are not UTF-8
    "]"
)


def print_note(line: str) -> None:
    """Print progress or a note on stderr in one write, if stderr can be written."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


class EscapingStream:
    """Wrapper of stdout or stderr that escapes control characters other than line ends and tabs."""

    def __init__(self, stream: IO[str]) -> None:
        self.rich_proxied_file = stream  # rich looks for a wrapped stream under this name

    def write(self, text: str) -> int:
        self.rich_proxied_file.write(escape_controls(text, keep="\n\t"))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def start_escaping_output() -> None:
    """Wrap stdout and stderr in EscapingStream."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, EscapingStream):
            # `stream` is None if the descriptor was closed when Python started (`2>&-`): output to it is discarded.
            setattr(sys, name, EscapingStream(stream or open(os.devnull, "w")))  # noqa: SIM115


def stop_escaping_output() -> None:
    """Undo `start_escaping_output`, so that a user's script or recipe can print colours and progress bars."""
    sys.stdout = getattr(sys.stdout, "rich_proxied_file", sys.stdout)
    sys.stderr = getattr(sys.stderr, "rich_proxied_file", sys.stderr)


def make_console(*, stderr: bool = False, file: IO[str] | None = None) -> Console:
    """Return a console for stdout or stderr, or for `file` with the colours and width of stdout or stderr."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    terminal = stream.isatty()
    width = Console(file=stream).width if terminal else UNBOUNDED_WIDTH
    return Console(
        file=file or stream, force_terminal=terminal, width=width, highlight=False, markup=False, emoji=False
    )


def make_number_columns(*names: str) -> list[Column]:
    """Return right-aligned columns for numbers, which `print_table` does not wrap."""
    from rich.table import Column

    return [Column(name, justify="right") for name in names]


def print_table(table: Table, console: Console | None = None) -> None:
    """Print a table without cutting anything off; right-aligned columns are not wrapped."""
    console = console or make_console()
    escape_cells(table)
    for column in table.columns:
        column.overflow = "fold"
        column.no_wrap = column.justify == "right"
    width = console.width
    console.width = max(width, measure_minimum_width(table, console))
    console.print(table, crop=False)
    console.width = width


def escape_cells(table: Table) -> None:
    """Escape the control characters in all cells of a table."""
    from rich.text import Text

    for column in table.columns:
        for index, cell in enumerate(column._cells):
            plain = cell.plain if isinstance(cell, Text) else cell
            if isinstance(plain, str) and UNSAFE.search(plain):
                safe = escape_controls(plain, keep="\n")
                column._cells[index] = Text(safe, cell.style) if isinstance(cell, Text) else safe


def measure_minimum_width(table: Table, console: Console) -> int:
    """Return a width at which rich does not cut the table off; text columns may shrink to MIN_TEXT_WIDTH."""
    from rich.measure import Measurement

    options = console.options.update(width=UNBOUNDED_WIDTH)
    total = 2  # at most 2 characters for the edges of the table, and 4 for the padding of each column
    for column in table.columns:
        widest = max(Measurement.get(console, options, cell).maximum for cell in (column.header, *column.cells))
        total += 4 + (widest if column.no_wrap else min(widest, MIN_TEXT_WIDTH))
    return total


def align_columns(rows: Sequence[Sequence[str]], text_columns: Collection[int] = (0,)) -> list[str]:
    """Return a line for each row; text columns are aligned to the left, the others (numbers) to the right."""
    cells = [[escape_controls(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    formats = [f"{'<' if index in text_columns else '>'}{width}" for index, width in enumerate(widths)]
    return ["  ".join(f"{cell:{form}}" for cell, form in zip(row, formats, strict=True)).rstrip() for row in cells]


def escape_controls(text: str, keep: str = "") -> str:
    r"""Return the text with control characters replaced by visible escapes: `\x1b`, `\n`, `\u202e`.

    Line ends and tabs are replaced, too, unless they are in `keep`. Bytes of a name that are not UTF-8 are shown as
    `\xff`.
    """
    return UNSAFE.sub(lambda match: match[0] if match[0] in keep else escape_character(match[0]), text)


def tidy_message(text: str) -> str:
    """Escape control characters in a message, and shorten very long names in the middle.

    Messages indent all lines but the first by two spaces, so a line end that no two spaces follow is part of a name.
    """
    text = re.sub(r"\n(?!  )", r"\\n", text)
    text = re.sub(rf"\S{{{MAX_NAME_LENGTH},}}", lambda name: f"{name[0][:200]} … {name[0][-100:]}", text)
    return escape_controls(text, keep="\n")


def escape_character(character: str) -> str:
    r"""Return one character as an escape: `\n`, `\x1b` or `\u202e`."""
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte from 0x80 on, decoded by os.fsdecode
        return f"\\x{code - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()


@contextmanager
def show_progress(unit: str, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar if stderr is a terminal; yield a function that is called with (done, total)."""
    if quiet or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn(unit), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("")
        yield lambda done, total: bar.update(task, completed=done, total=total)
