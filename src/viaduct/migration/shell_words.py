"""The words of a shell script with their positions: enough of the grammar to tell commands from comments and quotes.

Quotes, comments, continued lines, here-documents, `$(…)` and backquotes are recognised. Nothing is expanded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

SEPARATORS = ";&|()\n`"
BLANK = " \t\r"
HEREDOC = re.compile(r"<<(-?)[ \t]*(?:\"([^\"\n]+)\"|'([^'\n]+)'|\\?([^\s;&|()<>]+))")


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command as it is written, quotes included."""

    start: int
    text: str

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def plain(self) -> str:
        """Text of the word without its quotes."""
        return self.text.replace('"', "").replace("'", "")


@dataclass
class Script:
    """Commands of a script as lists of words. `documents`: spans of here-documents.

    `dead`: spans in which `$NAME` is not expanded: comments, single quotes, quoted here-documents.
    """

    text: str
    commands: list[list[Word]] = field(default_factory=list)
    dead: list[tuple[int, int]] = field(default_factory=list)
    documents: list[tuple[int, int]] = field(default_factory=list)

    def is_dead(self, position: int) -> bool:
        return any(start <= position < end for start, end in self.dead)

    def line_of(self, position: int) -> int:
        return self.text.count("\n", 0, position) + 1


def read(text: str) -> Script:
    script = Script(text)
    reader = _Reader(script)
    reader.run()
    script.commands = [command for command in script.commands if command]
    return script


class _Reader:
    def __init__(self, script: Script) -> None:
        self.script, self.text = script, script.text
        self.command: list[Word] = []
        self.begin = -1  # where the word in hand began
        self.pending: list[tuple[str, bool, bool]] = []  # here-documents: (end mark, tabs stripped, quoted)

    def run(self) -> None:
        location = 0
        while location < len(self.text):
            location = self.step(location)
        self.end_command(len(self.text))

    def step(self, position: int) -> int:
        """Read one character or one quoted piece, and return the position behind it."""
        char = self.text[position]
        if char == "\\":
            return self.escape(position)
        if char in "\"'":
            return self.quote(position, char)
        if char == "#" and self.begin < 0:
            return self.comment(position)
        if self.text.startswith("<<", position) and not self.text.startswith("<<<", position):
            return self.heredoc(position)
        if self.text.startswith("${", position):
            return self.braces(position)
        if char in BLANK or char in "<>":
            self.end_word(position)
            return position + 1
        if char in SEPARATORS:
            self.end_command(position)
            return self.documents(position + 1) if char == "\n" else position + 1
        self.begin = position if self.begin < 0 else self.begin
        return position + 1

    def escape(self, position: int) -> int:
        if self.text.startswith(("\\\n", "\\\r\n"), position):
            self.end_word(position)
            return self.text.index("\n", position) + 1
        self.begin = position if self.begin < 0 else self.begin
        return position + 2

    def quote(self, position: int, char: str) -> int:
        self.begin = position if self.begin < 0 else self.begin
        end = position + 1
        while end < len(self.text) and self.text[end] != char:
            end += 2 if self.text[end] == "\\" and char == '"' else 1
        if char == "'":
            self.script.dead.append((position, end))
        return min(end, len(self.text)) + 1

    def braces(self, position: int) -> int:
        self.begin = position if self.begin < 0 else self.begin
        end = self.text.find("}", position)
        return len(self.text) if end < 0 else end + 1

    def comment(self, position: int) -> int:
        end = self.text.find("\n", position)
        end = len(self.text) if end < 0 else end
        self.script.dead.append((position, end))
        return end

    def heredoc(self, position: int) -> int:
        match = HEREDOC.match(self.text, position)
        self.end_word(position)
        if match is None:
            return position + 2
        mark = match[2] or match[3] or match[4]
        self.pending.append((mark, bool(match[1]), match[4] is None or "\\" in match[0]))
        return match.end()

    def documents(self, position: int) -> int:
        """Read the here-documents that the line before has begun, and return the position behind them."""
        for mark, tabs, quoted in self.pending:
            start = position
            while position < len(self.text):
                stop = self.text.find("\n", position)
                stop = len(self.text) if stop < 0 else stop
                line = self.text[position:stop].rstrip("\r")
                position = stop + 1
                if (line.lstrip("\t") if tabs else line) == mark:
                    break
            self.script.documents.append((start, min(position, len(self.text))))
            if quoted:
                self.script.dead.append((start, min(position, len(self.text))))
        self.pending = []
        return min(position, len(self.text))

    def end_word(self, position: int) -> None:
        if self.begin >= 0:
            self.command.append(Word(self.begin, self.text[self.begin : position]))
            self.begin = -1

    def end_command(self, position: int) -> None:
        self.end_word(position)
        self.script.commands.append(self.command)
        self.command = []


def uses(script: Script, name: str) -> Iterator[int]:
    """Yield where a variable's value is used: `$NAME`, `${NAME:-0}`, `${#NAME}`; the position is that of its name."""
    pattern = re.compile(rf"(?<!\\)\$(?:\{{[#!]?)?({re.escape(name)})(?![A-Za-z0-9_])")
    for match in pattern.finditer(script.text):
        if not script.is_dead(match.start()):
            yield match.start(1)
