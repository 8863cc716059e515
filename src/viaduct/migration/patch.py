"""Write the changes of a file as a patch for `git apply -p0` and `patch -p0`.

The lines of the patch have the bytes and line ends of the file, so the patch applies whatever their encoding.
"""

from __future__ import annotations

import os
import re
from difflib import SequenceMatcher

from viaduct.migration.diffing import align_lines, find_anchors, find_hunks, order_hunk_rows, render_hunk_header
from viaduct.migration.results import FileResult

QUOTED_BYTES = re.compile(rb'[\0-\x1f\x7f"\\]')
"""Bytes that git writes as octal escapes, in a quoted path."""
NO_NEWLINE_MARK = "\n\\ No newline at end of file\n"


def as_patch(file: FileResult) -> bytes:
    """Return the patch of one changed or new file."""
    before, after = split_lines(file.before), split_lines(file.after)
    pairs = (
        match_equal_lines(before, after)
        if file.path.endswith(".ipynb")
        else find_anchors(before, after, file.original_lines)
    )
    name = quote_path(file.path)
    parts = [b"--- " + (name if file.before else b"/dev/null\n"), b"+++ " + name]
    for hunk in find_hunks(align_lines(before, after, pairs)):
        parts.append(f"{render_hunk_header(hunk)}\n".encode())
        for sign, row in order_hunk_rows(hunk):
            text = row.new_text if sign == "+" else row.old_text
            parts.append((sign + text + ("" if text.endswith("\n") else NO_NEWLINE_MARK)).encode("latin-1"))
    return b"".join(parts)


def split_lines(data: bytes) -> list[str]:
    """Split bytes into lines at line feeds, as a patch does; each character of a line stands for one byte."""
    return re.findall(r"[^\n]*\n|[^\n]+", data.decode("latin-1"))


def match_equal_lines(before: list[str], after: list[str]) -> list[tuple[int, int]]:
    """Return pairs (old, new) of equal lines of an .ipynb file, which count from 0.

    `FileResult.original_lines` cannot be used: in a notebook they are lines of the code, not of the file.
    """
    blocks = SequenceMatcher(None, before, after).get_matching_blocks()
    return [(block.a + index, block.b + index) for block in blocks for index in range(block.size)]


def quote_path(path: str) -> bytes:
    """Return a path and a line end as git writes them: quoted if necessary, with a tab if the path has a blank."""
    raw = os.fsencode(path)
    if QUOTED_BYTES.search(raw):
        return b'"' + QUOTED_BYTES.sub(lambda found: b"\\%03o" % found[0][0], raw) + b'"\n'
    return raw + (b"\t\n" if b" " in raw else b"\n")
