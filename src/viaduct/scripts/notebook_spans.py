"""Find the sources of code cells in a notebook's JSON, so that one can be replaced without reformatting the file.

Tools write the JSON differently: indents, sorted keys, escaped characters. The standard decoder reads the values; this
module walks only the objects and lists that lead to a source, to find its position.

`text` is the content of the file. A position (start, end) means `text[start:end]`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from json.decoder import JSONDecodeError, JSONDecoder
from typing import Any

SPACE = re.compile(r"[ \t\r\n]*")
decode = JSONDecoder().raw_decode  # (text, position) -> (value that begins there, position of its end)


@dataclass(frozen=True)
class Span:
    """The source of a code cell and its position in the file."""

    cell: int  # index of the cell among all cells
    start: int  # position of the source's JSON value
    end: int
    source: str


def find_sources(text: str) -> list[Span]:
    """Return the sources of the code cells in nbformat 4 (`cells`) or 3 (`worksheets`)."""
    spans = (read_source(text, start, number) for number, (start, _) in enumerate(find_cells(text)))
    return [span for span in spans if span is not None]


def find_cells(text: str) -> Iterator[tuple[int, int]]:
    """Yield the positions of all cells."""
    members = dict(find_members(text, skip_space(text, 0)))
    if "cells" in members:
        yield from find_elements(text, members["cells"][0])
    elif "worksheets" in members:
        for start, _ in find_elements(text, members["worksheets"][0]):
            inner = dict(find_members(text, start))
            if "cells" in inner:
                yield from find_elements(text, inner["cells"][0])


def read_source(text: str, start: int, number: int) -> Span | None:
    """Return the source of the cell at `start` if it is a code cell in Python, else None."""
    cell: Any = decode(text, start)[0]
    members = dict(find_members(text, start))
    key = "source" if "source" in members else "input"
    if key not in members or cell.get("cell_type") != "code" or cell.get("language", "python") != "python":
        return None
    source = cell[key]
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        source = "".join(source)
    return Span(number, *members[key], source) if isinstance(source, str) else None


def skip_space(text: str, at: int) -> int:
    """Return the index of the first character at or after `at` that is not white space."""
    match = SPACE.match(text, at)
    return match.end() if match else at


def find_members(text: str, at: int) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield (key, position of its value) of the object that begins at `at`; nothing if it is not an object."""
    if text[at : at + 1] != "{":
        return
    at = skip_space(text, at + 1)
    while text[at : at + 1] == '"':
        key, at = decode(text, at)
        at = skip_space(text, at)
        start = skip_space(text, at + 1)  # after the colon
        _, end = decode(text, start)
        yield key, (start, end)
        at = skip_space(text, end)
        if text[at : at + 1] == ",":
            at = skip_space(text, at + 1)


def find_elements(text: str, at: int) -> Iterator[tuple[int, int]]:
    """Yield the positions of the elements of the list that begins at `at`; nothing if it is not a list."""
    if text[at : at + 1] != "[":
        return
    at = skip_space(text, at + 1)
    while at < len(text) and text[at] != "]":
        _, end = decode(text, at)
        yield at, end
        at = skip_space(text, end)
        if text[at : at + 1] == ",":
            at = skip_space(text, at + 1)
        elif text[at : at + 1] != "]":
            raise JSONDecodeError("a list is not closed", text, at)


def rewrite_source(text: str, span: Span, source: str) -> str:
    """Return the JSON of a new source in the format of the one at `span`: a string or a list of lines.

    Lines that are also in the old list keep their JSON. Characters beyond ASCII are escaped if the file has none.
    """
    escape = text.isascii()
    if text[span.start] != "[":
        return json.dumps(source, ensure_ascii=escape)
    elements = list(find_elements(text, span.start))
    old_lines = {decode(text, start)[0]: text[start:end] for start, end in elements}
    # Notebooks split at line feeds only, unlike str.splitlines.
    lines = [line for line in re.split(r"(?<=\n)", source) if line]
    encoded = [old_lines.get(line) or json.dumps(line, ensure_ascii=escape) for line in lines]
    if not elements:
        return f"[{', '.join(encoded)}]"
    opening, closing = text[span.start : elements[0][0]], text[elements[-1][1] : span.end]
    if len(elements) > 1:
        separator = text[elements[0][1] : elements[1][0]]
    else:  # the old list shows no separator: derive it from the space after its bracket, or from the rest of the file
        space = opening[1:]
        separator = f",{space}" if space else ", " if ", " in text else ","
    return opening + separator.join(encoded) + closing
