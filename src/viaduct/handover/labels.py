"""Names of a classifier's outputs: from --labels, or else the run, or else the data or the recipe's source of data."""

from __future__ import annotations

from pathlib import Path

from viaduct.data.shards import LABELS_FILE, parse_label_names
from viaduct.data.source import Source
from viaduct.errors import BadData, BadRun
from viaduct.path_errors import refuse_special_file
from viaduct.run_files import LABELS, read_labels
from viaduct.terminal import escape_controls

MAX_BYTES = 1 << 24  # limit of a file with names


def read_labels_file(file: Path, outputs: int, shift: int) -> tuple[str, ...]:
    """Read names from a user's file: a line for each output, or NUMBER:NAME lines as `data build` writes them.

    A number plus `shift` (the recipe's label_shift) is the index of an output. In a file without numbers and with one
    name less than outputs, the first line is label 1. `file` may also be a folder with labels.txt.
    """
    if file.is_dir():
        file = file / LABELS_FILE
    try:
        refuse_special_file(file)
        with open(file, "rb") as stream:
            content = stream.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise BadData(f"--labels {file}: it has more than {MAX_BYTES:,} bytes, too many for a list of names.")
        lines = content.decode("utf-8").splitlines()
    except FileNotFoundError:
        raise BadData(f"--labels {file}: there is no such file.") from None
    except UnicodeDecodeError as error:
        raise BadData(f"--labels {file}: byte {error.start:,} is not UTF-8.") from None
    lines = [line.strip() for line in lines]
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise BadData(f"--labels {file}: it is empty.")
    numbered = parse_label_names(lines)
    if len(lines) == outputs and not is_numbered(lines):
        return tuple(escape_controls(line) for line in lines)  # a line for each output
    names = {label + shift: name for label, name in numbered.items()}
    wrong = [label for label in names if not 0 <= label < outputs]
    if wrong or (not is_numbered(lines) and len(lines) != outputs - 1):  # - 1: the background has no name
        raise BadData(
            f"--labels {file}: it has {len(lines):,} names, and the network {outputs:,} outputs.",
            "Give a line for each output, or NUMBER:NAME lines.",
        )
    return name_outputs(names, outputs)


def is_numbered(lines: list[str]) -> bool:
    return all(line[:1].isdigit() and ":" in line for line in lines)


def find_labels(
    source: Source, run: Path | None, data: Path | None, file: Path | None
) -> tuple[tuple[str, ...], list[str]]:
    """Return a name for each output, and notes for the user: one if the names are unknown.

    `file` is that of --labels; `run` and `data` are the folders of the run and of its data, if known.
    """
    outputs = source.classes
    if file is not None:
        return read_labels_file(file, outputs, getattr(source, "label_shift", 0)), []
    if run is not None and (names := read_labels(run)):
        if len(names) != outputs:
            raise BadRun(f"{run / LABELS} has {len(names):,} names, and the network {outputs:,} outputs.")
        return names, []
    known = source.read_label_names(data)
    if known:
        return name_outputs(known, outputs), []
    return name_outputs({}, outputs), ["The classes have no names here, only numbers; --labels FILE gives them names."]


def name_outputs(names: dict[int, str], outputs: int) -> tuple[str, ...]:
    """Return a name for each output; the default is its number."""
    return tuple(escape_controls(names.get(output, str(output))) for output in range(outputs))
