"""Split a shell script into commands and words with their positions.

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
    """A word of a command as written, with its quotes."""

    start: int
    text: str

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def plain(self) -> str:
        return self.text.replace('"', "").replace("'", "")


@dataclass
class Script:
    """A shell script, split into commands. Spans are (start, end) in its text."""

    text: str
    commands: list[list[Word]] = field(default_factory=list)  # each a non-empty list of words
    # Spans in which `$NAME` is not a variable: comments, single quotes, here-documents with a quoted end mark.
    unexpanded: list[tuple[int, int]] = field(default_factory=list)
    documents: list[tuple[int, int]] = field(default_factory=list)  # spans of here-documents

    def line_of(self, position: int) -> int:
        return self.text.count("\n", 0, position) + 1


def read_script(text: str) -> Script:
    """Split a script into commands and words."""
    script = Script(text)
    reader = _Reader(script)
    position = 0
    while position < len(text):
        position = reader.read_next(position)
    reader.end_command(len(text))
    return script


class _Reader:
    """State of reading a script. A method `read_…` reads at a position and returns the position behind what it read."""

    def __init__(self, script: Script) -> None:
        self.script, self.text = script, script.text
        self.command: list[Word] = []  # words of the current command
        self.word_start = -1  # start of the current word; -1: between words
        # Here-documents that begin on the next line: (end mark, tabs stripped, mark quoted).
        self.pending_documents: list[tuple[str, bool, bool]] = []

    def read_next(self, position: int) -> int:
        """Read one character, or one part such as a quotation or a comment."""
        char = self.text[position]
        if char == "\\":
            return self.read_escape(position)
        if char in "\"'":
            return self.read_quoted(position, char)
        if char == "#" and self.word_start < 0:
            return self.read_comment(position)
        if self.text.startswith("<<", position) and not self.text.startswith("<<<", position):
            return self.read_document_mark(position)
        if self.text.startswith("${", position):
            return self.read_braces(position)
        if char in BLANK or char in "<>":
            self.end_word(position)
            return position + 1
        if char in SEPARATORS:
            self.end_command(position)
            return self.read_documents(position + 1) if char == "\n" else position + 1
        self.begin_word(position)
        return position + 1

    def read_escape(self, position: int) -> int:
        """Read a backslash and the character behind it; an escaped line end separates words, not commands."""
        if self.text.startswith(("\\\n", "\\\r\n"), position):
            self.end_word(position)
            return self.text.index("\n", position) + 1
        self.begin_word(position)
        return position + 2

    def read_quoted(self, position: int, char: str) -> int:
        """Read a quoted part; a backslash escapes only within double quotes."""
        self.begin_word(position)
        end = position + 1
        while end < len(self.text) and self.text[end] != char:
            end += 2 if self.text[end] == "\\" and char == '"' else 1
        if char == "'":
            self.script.unexpanded.append((position, end))
        return min(end, len(self.text)) + 1

    def read_braces(self, position: int) -> int:
        self.begin_word(position)
        end = self.text.find("}", position)
        return len(self.text) if end < 0 else end + 1

    def read_comment(self, position: int) -> int:
        end = self.text.find("\n", position)
        end = len(self.text) if end < 0 else end
        self.script.unexpanded.append((position, end))
        return end

    def read_document_mark(self, position: int) -> int:
        """Read `<<END`; the document itself begins on the next line."""
        match = HEREDOC.match(self.text, position)
        self.end_word(position)
        if match is None:
            return position + 2
        mark = match[2] or match[3] or match[4]
        self.pending_documents.append((mark, bool(match[1]), match[4] is None or "\\" in match[0]))
        return match.end()

    def read_documents(self, position: int) -> int:
        """Read the here-documents of the line before."""
        for mark, strips_tabs, is_quoted in self.pending_documents:
            start = position
            while position < len(self.text):
                stop = self.text.find("\n", position)
                stop = len(self.text) if stop < 0 else stop
                line = self.text[position:stop].rstrip("\r")
                position = stop + 1
                if (line.lstrip("\t") if strips_tabs else line) == mark:
                    break
            self.script.documents.append((start, min(position, len(self.text))))
            if is_quoted:
                self.script.unexpanded.append((start, min(position, len(self.text))))
        self.pending_documents = []
        return min(position, len(self.text))

    def begin_word(self, position: int) -> None:
        """Record the start of a word, unless the position is within one."""
        self.word_start = position if self.word_start < 0 else self.word_start

    def end_word(self, position: int) -> None:
        if self.word_start >= 0:
            self.command.append(Word(self.word_start, self.text[self.word_start : position]))
            self.word_start = -1

    def end_command(self, position: int) -> None:
        self.end_word(position)
        if self.command:
            self.script.commands.append(self.command)
        self.command = []


def find_uses(script: Script, name: str) -> Iterator[int]:
    """Yield the position of a variable's name wherever its value is used: `$NAME`, `${NAME:-0}`, `${#NAME}`."""
    pattern = re.compile(rf"(?<!\\)\$(?:\{{[#!]?)?({re.escape(name)})(?![A-Za-z0-9_])")
    for match in pattern.finditer(script.text):
        if not any(start <= match.start() < end for start, end in script.unexpanded):
            yield match.start(1)
