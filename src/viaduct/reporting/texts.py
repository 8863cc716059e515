"""Make the text of other people's files safe to show on a page: write out invisible characters, fit long names.

A file may be called `photo<U+202E>gpj.exe`, and a browser would show `photoexe.jpg`; a source line may contain ESC.
Such characters are written out (`\\u202e`, `\\x1b`), in the HTML and in the JSON that the page's scripts read.
"""

from __future__ import annotations

import json
import re
from typing import Any

from markupsafe import Markup, escape

from viaduct.terminal import escape_controls

MAX_UNBROKEN = 20  # a word with more letters than this may break after its separators
SEPARATORS = r"./\\:_,=(\[-"
# The position after a single separator between two other characters.
BREAKS = re.compile(rf"(?<=[^{SEPARATORS}][{SEPARATORS}])(?=[^{SEPARATORS}])")


def escape_invisible(value: object) -> object:
    """Escape invisible characters except tabs and line ends; applied to every value that a template writes.

    Markup, which only this package makes, stays as it is.
    """
    return escape_controls(value, keep="\n\t") if isinstance(value, str) and not isinstance(value, Markup) else value


def dump_json(value: object, **settings: Any) -> str:
    """Return JSON with invisible characters written out in all strings."""
    return json.dumps(escape_invisible_within(value), **settings)


def escape_invisible_within(value: object) -> object:
    if isinstance(value, dict):
        return {escape_invisible(name): escape_invisible_within(content) for name, content in value.items()}
    if isinstance(value, (list, tuple)):
        return [element if isinstance(element, (int, float)) else escape_invisible_within(element) for element in value]
    return escape_invisible(value)


def allow_breaks(value: object) -> Markup:
    """Return text as HTML in which long names may break after separators and `--flags` do not break."""
    return Markup("").join(map(break_word, re.split(r"(\S+)", str(escape_invisible(str(value))))))


def break_word(word: str) -> Markup:
    if len(word) > MAX_UNBROKEN:
        return Markup("<wbr>").join(map(escape, BREAKS.split(word)))
    # A browser breaks after any hyphen, also after those of --steps.
    return Markup('<span class="flag">{}</span>').format(word) if word.startswith("--") else escape(word)


def shorten_name(text: str, limit: int) -> str:
    """Replace the middle of a long name by `…`: layer3.0.downsample.1.bias → layer3…1.bias."""
    if len(text) <= limit:
        return text
    tail = limit // 2
    return f"{text[: limit - tail - 1]}…{text[-tail:]}"
