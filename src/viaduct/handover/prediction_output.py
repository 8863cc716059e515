"""Output of predictions as a table, JSON or CSV, batch by batch."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict
from typing import IO, Any

from viaduct.handover.predicting import Result
from viaduct.terminal import escape_controls


class Output(ABC):
    """Base of outputs: `write` receives the results of a batch, `finish` the totals, which only JSON shows."""

    @abstractmethod
    def write(self, results: Sequence[Result]) -> None: ...

    def finish(self, summary: dict[str, Any]) -> None:
        return


class TableOutput(Output):
    """Table with a row for each predicted image: the file, then label and percent of each class.

    If the terminal is too narrow for the first batch, each class has a separate line.
    """

    def __init__(self, stream: IO[str] | None = None) -> None:
        self.stream = stream or sys.stdout
        self.widths: list[int] = []
        self.stacked: bool | None = None  # True: a line for each class; None: not decided yet

    def write(self, results: Sequence[Result]) -> None:
        rows = [list_cells(result) for result in results if result.predictions]
        if not rows:
            return
        columns = range(max(len(row) for row in rows))
        self.widths += [0] * (len(columns) - len(self.widths))
        for column in columns:
            self.widths[column] = max(self.widths[column], *(measure_width(row[column]) for row in rows))
        if self.stacked is None:
            terminal = self.stream.isatty()
            self.stacked = terminal and sum(self.widths) + 2 * len(columns) > shutil.get_terminal_size().columns
        for row in rows:
            self.stream.write((self.stack(row) if self.stacked else self.align(row)) + "\n")
        self.stream.flush()

    def align(self, row: list[str]) -> str:
        """Return a row as one line, in columns of the widest cells so far."""
        return "  ".join(pad(cell, self.widths[column], column) for column, cell in enumerate(row)).rstrip()

    def stack(self, row: list[str]) -> str:
        """Return a row as several lines: the file, then a line for each class."""
        lines = [row[0]]
        for label, percent in zip(row[1::2], row[2::2], strict=True):
            lines.append(f"  {percent:>8}  {label}")
        return "\n".join(lines)


def list_cells(result: Result) -> list[str]:
    """Return the cells of a row: the file, then label and percent of each class."""
    cells = [escape_controls(result.file)]
    for prediction in result.predictions:
        cells += [prediction.label, f"{100 * prediction.probability:.2f} %"]
    return cells


def pad(cell: str, width: int, column: int) -> str:
    """Pad a cell to its column's width; percents, in columns 2, 4, 6 …, are right-justified."""
    blanks = " " * (width - measure_width(cell))
    return blanks + cell if column and column % 2 == 0 else cell + blanks


def measure_width(text: str) -> int:
    """Return the width of a text in a terminal, where East Asian characters take two columns."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


class JsonOutput(Output):
    """JSON document: facts about the weights, then `images`, `errors` and the summary."""

    def __init__(self, facts: dict[str, Any], stream: IO[str] | None = None) -> None:
        self.stream = stream or sys.stdout
        self.errors: list[dict[str, str]] = []
        self.separator = "\n"
        head = dump_json(facts)[1:-1]
        self.stream.write(f'{{{head}, "images": [')

    def write(self, results: Sequence[Result]) -> None:
        for result in results:
            if result.predictions:
                image = {"file": result.file, "predictions": [asdict(prediction) for prediction in result.predictions]}
                self.stream.write(self.separator + dump_json(image))
                self.separator = ",\n"
            elif result.error:
                self.errors.append({"file": result.file, "reason": result.error})
        self.stream.flush()

    def finish(self, summary: dict[str, Any]) -> None:
        errors = ",\n".join(map(dump_json, self.errors))
        tail = dump_json(summary)[1:-1]
        self.stream.write(f'\n],\n"errors": [{errors}], {tail}}}\n')
        self.stream.flush()


def dump_json(value: Any) -> str:
    """Return JSON of printable ASCII, so that the escaping of control characters on stdout does not change it."""
    return json.dumps(value).replace("\x7f", "\\u007f")


class CsvOutput(Output):
    """CSV table with a line for each file that has predictions or an error. Control characters are escaped."""

    def __init__(self, stream: IO[str], top: int) -> None:
        self.stream, self.top = stream, top
        columns = [f"{name}_{rank}" for rank in range(1, top + 1) for name in ("label", "index", "probability")]
        self.write_row(["file", *columns, "error"])

    def write(self, results: Sequence[Result]) -> None:
        for result in results:
            if result.predictions or result.error:
                cells: list[Any] = []
                for prediction in result.predictions:
                    cells += [prediction.label, prediction.index, prediction.probability]
                self.write_row([result.file, *cells, *[""] * (3 * self.top - len(cells)), result.error])
        self.stream.flush()

    def write_row(self, cells: Sequence[Any]) -> None:
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(
            [escape_controls(cell) if isinstance(cell, str) else cell for cell in cells]
        )
        self.stream.write(line.getvalue())
