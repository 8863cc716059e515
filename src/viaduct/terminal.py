"""Tables on the terminal, and the same tables in a pipe or a file; names and source that others wrote, safe to print.

    console = make_console()
    print_table(Table("recipe", *figure_columns("top-1 %", "loss")), console)

A pipe or a file gets no colour codes, and every line is as long as it needs to be. On a narrow terminal columns of
words fold; figures stay whole, and where they do not fit side by side the terminal breaks the line. Nothing is cut off.

`escape_controls` shows what would steer a terminal instead of sending it. `guard_streams`, at the start of every
command, does so for all that is printed; rich, which makes our colours and bars, passes by it, so tables are escaped
cell by cell.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Column, Table

UNBOUNDED = 100_000  # columns: wider than any table
WORDS = 12  # columns that a column of words is given at least, if it needs them
LONGEST_NAME = 400  # characters of a name in a message
UNSAFE = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # C0 and C1 controls: escape sequences, line ends, backspace
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidirectional overrides, which reorder what is read
    "\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"  # invisible
    "\u2028\u2029"  # line and paragraph separators
    "\ud800-\udfff"  # bytes of a file name that are no UTF-8
    "]"
)
SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def print_note(line: str) -> None:
    """Print progress or a note on stderr, in one piece; a reader who has left is no reason to stop."""
    with suppress(OSError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


class GuardedStream:
    """stdout or stderr with controls written out, but for line ends and tabs."""

    def __init__(self, stream: IO[str]) -> None:
        self.rich_proxied_file = stream  # the name by which rich finds the stream behind another one

    def write(self, text: str) -> int:
        self.rich_proxied_file.write(escape_controls(text, keep="\n\t"))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def guard_streams() -> None:
    """Send nothing to the terminal that steers it: names of files, tensors and classes come from anybody."""
    if not isinstance(sys.stdout, GuardedStream):
        sys.stdout = cast("TextIO", GuardedStream(sys.stdout))
    if not isinstance(sys.stderr, GuardedStream):
        sys.stderr = cast("TextIO", GuardedStream(sys.stderr))


def release_streams() -> None:
    """Give the streams to a script or recipe of the user's in this process, whose bars and colours are its own."""
    sys.stdout = getattr(sys.stdout, "rich_proxied_file", sys.stdout)
    sys.stderr = getattr(sys.stderr, "rich_proxied_file", sys.stderr)


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
    escape_cells(table)
    for column in table.columns:
        column.overflow = "fold"
        column.no_wrap = column.justify == "right"
    width = console.width
    console.width = max(width, narrowest(table, console))
    console.print(table, crop=False)
    console.width = width


def escape_cells(table: Table) -> None:
    """Write out the controls of all that a table shows."""
    from rich.text import Text

    for column in table.columns:
        for index, cell in enumerate(column._cells):
            plain = cell.plain if isinstance(cell, Text) else cell
            if isinstance(plain, str) and UNSAFE.search(plain):
                safe = escape_controls(plain, keep="\n")
                column._cells[index] = Text(safe, cell.style) if isinstance(cell, Text) else safe


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


def escape_controls(text: str, keep: str = "") -> str:
    r"""Return the text with every control character written out: `\x1b`, `\n`, `\u202e`.

    Line ends and tabs are controls too, as a file name may hold them; `keep` names those that stay: "\t" for a line of
    source, "\n\t" for a text of several lines. Bytes of a name that are no UTF-8 are shown as `\xff`.
    """
    return UNSAFE.sub(lambda found: found[0] if found[0] in keep else escape_character(found[0]), text)


def tidy_message(text: str) -> str:
    """Return a message with controls written out and endless names cut in the middle.

    The lines of a message are indented: a line end before anything else belongs to a name.
    """
    text = re.sub(r"\n(?!  )", r"\\n", text)
    text = re.sub(rf"\S{{{LONGEST_NAME},}}", lambda name: f"{name[0][:200]} … {name[0][-100:]}", text)
    return escape_controls(text, keep="\n")


def escape_character(character: str) -> str:
    code = ord(character)
    if character in SHORT:
        return SHORT[character]
    if 0xDC80 <= code <= 0xDCFF:  # os.fsdecode puts the byte 0x80 there, and so on
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


@contextlib.contextmanager
def show_progress(unit: str, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on stderr while it is a terminal; call what it gives with what is done and the total."""
    if quiet or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn(unit), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("")
        yield lambda done, total: bar.update(task, completed=done, total=total)
