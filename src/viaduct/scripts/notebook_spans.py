"""Spans of the code cells' sources in the text of a notebook, so that one can be replaced and the rest stays unchanged.

A notebook is JSON, and each tool writes it in its own way: other indents, sorted keys, escaped characters. The standard
decoder reads the values. This module walks only the objects and lists that lead to a source, to find its position.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from json.decoder import JSONDecodeError, JSONDecoder
from typing import Any

SPACE = re.compile(r"[ \t\r\n]*")
decode = JSONDecoder().raw_decode


@dataclass(frozen=True)
class Span:
    """A code cell's source: the cell's index among all cells, start and end of its JSON value, and its text."""

    place: int
    start: int
    end: int
    text: str


def find_sources(written: str) -> list[Span]:
    """Return the sources of the code cells, of nbformat 4 (`cells`) and of 3 (`worksheets`)."""
    found: list[Span] = []
    for position, (start, _) in enumerate(cell_spans(written)):
        members = dict(find_members(written, start))
        cell, _ = decode(written, start)
        span = source_span(written, members, cell, position) if isinstance(cell, dict) else None
        found += [span] if span is not None else []
    return found


def cell_spans(written: str) -> Iterator[tuple[int, int]]:
    members = dict(find_members(written, skip_space(written, 0)))
    if "cells" in members:
        yield from find_elements(written, members["cells"][0])
    elif "worksheets" in members:
        for start, _ in find_elements(written, members["worksheets"][0]):
            inner = dict(find_members(written, start))
            if "cells" in inner:
                yield from find_elements(written, inner["cells"][0])


def source_span(written: str, members: dict[str, tuple[int, int]], cell: dict[str, Any], place: int) -> Span | None:
    """Return the source of a code cell in Python; None for anything else."""
    key = "source" if "source" in members else "input"
    if cell.get("cell_type") != "code" or key not in members or cell.get("language", "python") != "python":
        return None
    source = cell[key]
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        return Span(place, *members[key], "".join(source))
    return Span(place, *members[key], source) if isinstance(source, str) else None


def skip_space(written: str, at: int) -> int:
    match = SPACE.match(written, at)
    return match.end() if match else at


def find_members(written: str, at: int) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the keys of an object and where the value of each stands; nothing for another value."""
    if written[at : at + 1] != "{":
        return
    at = skip_space(written, at + 1)
    while written[at : at + 1] == '"':
        key, at = decode(written, at)
        at = skip_space(written, at)
        start = skip_space(written, at + 1)  # behind the colon
        _, end = decode(written, start)
        yield key, (start, end)
        at = skip_space(written, end)
        if written[at : at + 1] == ",":
            at = skip_space(written, at + 1)


def find_elements(written: str, at: int) -> Iterator[tuple[int, int]]:
    """Yield where the elements of a list stand; nothing for another value."""
    if written[at : at + 1] != "[":
        return
    at = skip_space(written, at + 1)
    while at < len(written) and written[at] != "]":
        _, end = decode(written, at)
        yield at, end
        at = skip_space(written, end)
        if written[at : at + 1] == ",":
            at = skip_space(written, at + 1)
        elif written[at : at + 1] != "]":
            raise JSONDecodeError("a list is not closed", written, at)


def rewrite_source(written: str, span: Span, text: str) -> str:
    """Return the JSON of a new source in the manner of the old one; lines that stay keep their very characters."""
    escapes = written.isascii()
    if written[span.start] != "[":
        return json.dumps(text, ensure_ascii=escapes)
    elements = list(find_elements(written, span.start))
    kept = {decode(written, start)[0]: written[start:end] for start, end in elements}
    lines = [kept.get(line) or json.dumps(line, ensure_ascii=escapes) for line in split_lines(text)]
    if not elements:
        return f"[{', '.join(lines)}]"
    opening, closing = written[span.start : elements[0][0]], written[elements[-1][1] : span.end]
    if len(elements) > 1:
        between = written[elements[0][1] : elements[1][0]]
    else:
        space = opening[1:]
        between = f",{space}" if space else ", " if ", " in written else ","
    return opening + between.join(lines) + closing


def split_lines(text: str) -> list[str]:
    """Return the lines with their ends, split at line feeds alone, as notebooks are."""
    return [line for line in re.split(r"(?<=\n)", text) if line]
