"""Parser of JSON that a person wrote: accepts comments, repeated keys and numbers, so that a check can report them."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import NamedTuple

# A string, which may contain slashes, or a comment.
TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
# Full-width characters that an input method writes in place of JSON's quotes, commas, colons and brackets.
FULL_WIDTH = "“”‘’，：；【】｛｝"


class BareNumber(str):
    """A JSON number, which a rank table should have in quotes; kept as text, so that no digit is lost."""

    __slots__ = ()


class JsonObject(dict[str, object]):
    """A JSON object."""

    repeated: tuple[str, ...] = ()  # keys that were given more than once


class NotJson(Exception):
    """The text is not JSON."""

    def __init__(self, path: str, wrong: str, fix: str) -> None:
        super().__init__(wrong)
        self.path, self.wrong, self.fix = path, wrong, fix


class StrippedText(NamedTuple):
    """JSON text without comments."""

    text: str
    lines: tuple[int, ...]  # numbers of the lines on which a comment began


def strip_comments(text: str) -> StrippedText:
    """Replace comments with blanks, so that lines and columns stay the same."""
    lines = []

    def blank(match: re.Match[str]) -> str:
        if match[0].startswith('"'):
            return match[0]
        lines.append(text.count("\n", 0, match.start()) + 1)
        return re.sub(r"[^\n]", " ", match[0])

    return StrippedText(TOKEN.sub(blank, text), tuple(lines))


def decode(data: bytes) -> str:
    """Decode UTF-8, with or without a byte order mark; raise NotJson."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        wrong = f"byte {error.start} (0x{data[error.start]:02x}) is not UTF-8"
        raise NotJson(f"byte {error.start}", wrong, "Save the file as UTF-8; comments are best removed.") from error


def parse(text: str) -> object:
    """Parse JSON, with objects as `JsonObject` and numbers as `BareNumber`; raise NotJson."""
    try:
        return json.loads(
            text,
            object_pairs_hook=build_object,
            parse_int=BareNumber,
            parse_float=BareNumber,
            parse_constant=BareNumber,
        )
    except json.JSONDecodeError as error:
        position = correct_position(text, error.pos)
        line, column = text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)
        wrong = error.msg[:1].lower() + error.msg[1:]
        raise NotJson(f"line {line}, column {column}", wrong, suggest_fix(text, position)) from error
    except RecursionError as error:
        raise NotJson("$", "nested too deeply", "A rank table has four levels.") from error


def build_object(pairs: list[tuple[str, object]]) -> JsonObject:
    entries = JsonObject(pairs)
    if len(entries) < len(pairs):
        times = Counter(key for key, _ in pairs)
        entries.repeated = tuple(key for key in entries if times[key] > 1)
    return entries


def correct_position(text: str, position: int) -> int:
    """Return the position of a syntax error as Python 3.13 reports it: for `,]` that of the comma."""
    before = text[:position].rstrip()
    return len(before) - 1 if before.endswith(",") and text[position : position + 1] in ("]", "}") else position


def suggest_fix(text: str, position: int) -> str:
    """Suggest a fix from the characters around the syntax error."""
    character, previous = text[position : position + 1], text[:position].rstrip()[-1:]
    if not text.strip():
        return "The file is empty, or has comments only; `viaduct ranktable make` writes a table."
    if not character:
        return "The file ends too early: a bracket or a quote is not closed."
    if character in FULL_WIDTH:
        return f"{character!r} is a full-width character; JSON takes the plain ones only."
    if character == "'":
        return "JSON has double quotes only."
    if re.match(r",\s*[]}]", text[position:]):
        return "There is no comma before a closing bracket in JSON."
    if character == '"' and previous not in ("{", "[", ",", ":", ""):
        return "Is there a comma missing before it?"
    if text.startswith("/*", position):
        return "The comment that begins here is never closed: */ is missing."
    return f"{character!r} cannot stand here."
