"""The changes of a file as a patch that `git apply -p0` and `patch -p0` take: its bytes, with tabs and line ends."""

from __future__ import annotations

import os
import re
from difflib import SequenceMatcher

from viaduct.migration.diffing import anchors, head, hunks, in_order, rows_between
from viaduct.migration.run import FileResult

UNSAFE = re.compile(rb'[\0-\x1f\x7f"\\]')
UNENDED = "\n\\ No newline at end of file\n"


def as_patch(file: FileResult) -> bytes:
    """Return the changes of a file as a unified diff."""
    before, after = lines(file.before), lines(file.after)
    pairs = match_equal_lines(before, after) if file.path.endswith(".ipynb") else anchors(before, after, file.stems)
    name = quote_path(file.path)
    parts = [b"--- " + (name if file.before else b"/dev/null\n"), b"+++ " + name]
    for hunk in hunks(rows_between(before, after, pairs)):
        parts.append(f"{head(hunk)}\n".encode())
        for sign, row in in_order(hunk):
            text = row.new_text if sign == "+" else row.old_text
            parts.append((sign + text + ("" if text.endswith("\n") else UNENDED)).encode("latin-1"))
    return b"".join(parts)


def lines(data: bytes) -> list[str]:
    """Split a text as a patch counts lines: only a line feed ends one. A letter stands for a byte, whatever the
    encoding.
    """
    return re.findall(r"[^\n]*\n|[^\n]+", data.decode("latin-1"))


def match_equal_lines(before: list[str], after: list[str]) -> list[tuple[int, int]]:
    """Equal lines of a notebook's file, of which nobody knows where they stem from."""
    blocks = SequenceMatcher(None, before, after).get_matching_blocks()
    return [(block.a + index, block.b + index) for block in blocks for index in range(block.size)]


def quote_path(path: str) -> bytes:
    """Return a path as git writes it: quoted where it must be, and with a tab where a blank could end it."""
    raw = os.fsencode(path)
    if UNSAFE.search(raw):
        return b'"' + UNSAFE.sub(lambda found: b"\\%03o" % found[0][0], raw) + b'"\n'
    return raw + (b"\t\n" if b" " in raw else b"\n")
