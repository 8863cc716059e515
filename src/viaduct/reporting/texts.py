"""Text from outside on its way into a page: nothing in it may hide, turn the line around or refuse to break.

A file may be called `photo<U+202E>gpj.exe`, and a browser would show `photoexe.jpg`; a source line may hold ESC. Such
characters are written out (`\\u202e`, `\\x1b`), in the HTML and in the JSON that the page's scripts read.
"""

from __future__ import annotations

import json
import re
from typing import Any

from markupsafe import Markup, escape

from viaduct.terminal import escape_controls

LONG = 20
"""Letters without a blank from which on a name is offered places to break."""
SEPARATORS = r"./\\:_,=(\[-"
BREAKS = re.compile(rf"(?<=[^{SEPARATORS}][{SEPARATORS}])(?=[^{SEPARATORS}])")


def show_hidden(value: object) -> object:
    """Write out what a reader would not see as what it is; every value that a template writes passes here.

    Markup is ours and stays as it is; tabs and line ends are part of source.
    """
    return escape_controls(value, keep="\n\t") if isinstance(value, str) and not isinstance(value, Markup) else value


def dump_visible(value: object, **settings: Any) -> str:
    """JSON with nothing hidden in its texts either."""
    return json.dumps(show_hidden_within(value), **settings)


def show_hidden_within(value: object) -> object:
    if isinstance(value, dict):
        return {show_hidden(name): show_hidden_within(content) for name, content in value.items()}
    if isinstance(value, (list, tuple)):
        return [item if isinstance(item, (int, float)) else show_hidden_within(item) for item in value]
    return show_hidden(value)


def offer_breaks(value: object) -> Markup:
    """Let a long name break behind its dots, slashes and underscores; the text itself stays what it was."""
    return Markup("").join(map(break_word, re.split(r"(\S+)", str(show_hidden(str(value))))))


def break_word(word: str) -> Markup:
    if len(word) > LONG:
        return Markup("<wbr>").join(map(escape, BREAKS.split(word)))
    # A browser breaks behind any hyphen, also behind those of --steps.
    return Markup('<span class="flag">{}</span>').format(word) if word.startswith("--") else escape(word)
