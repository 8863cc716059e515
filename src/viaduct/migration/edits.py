"""Edits of a text: collected first, then applied together. They preserve layout and comments."""

from __future__ import annotations

import ast
import tokenize
from bisect import bisect_left, insort
from dataclasses import dataclass, field

from viaduct.migration.source import LINE_END, BracketItem, Source, Token


class Overlap(Exception):
    """An edit overlaps an earlier one, and was not made."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Replacement of one span of the text."""

    start: int
    end: int
    text: str


@dataclass
class Edits:
    """The edits of one rule in one file, as spans of the text before these edits."""

    source: Source
    made: list[Edit] = field(default_factory=list)  # in the order in which they were made
    spans: list[tuple[int, int]] = field(default_factory=list)  # (start, end) of `made`, in the order of the text
    removed: set[ast.stmt] = field(default_factory=set)  # statements that `remove_statement` has removed

    # ---- spans and nodes

    def replace(self, start: int, end: int, text: str) -> None:
        """Replace a span; raise Overlap if an earlier edit overlaps it."""
        count = bisect_left(self.spans, (end,))  # spans that begin before `end`; the last of them ends last
        if count and self.spans[count - 1][1] > start:
            raise Overlap
        if self.source.text[start:end] != text:
            self.made.append(Edit(start, end, text))
            insort(self.spans, (start, end))

    def undo_after(self, count: int) -> None:
        """Undo all edits except the `count` that were made first."""
        for edit in self.made[count:]:
            self.spans.remove((edit.start, edit.end))
        del self.made[count:]

    def insert(self, at: int, text: str) -> None:
        self.replace(at, at, text)

    def delete(self, start: int, end: int) -> None:
        if start < end:
            self.replace(start, end, "")

    def replace_node(self, node: ast.AST, text: str) -> None:
        """Replace a node; comments in it that the new text lacks move to lines before its statement."""
        start, end = self.source.span(node)
        self.replace(start, end, text)
        lost = [comment.text for comment in self.source.comments(start, end) if comment.text not in text]
        self.keep_comments(self.source.statement_around(node), lost)

    def replace_attribute(self, node: ast.Attribute, name: str) -> None:
        """Replace `attribute` of `object.attribute`."""
        end = self.source.span(node)[1]
        self.replace(end - len(node.attr), end, name)

    def enclose(self, node: ast.AST, before: str, after: str = ")") -> None:
        """Insert text directly before and after a node, such as `f(` and `)`."""
        start, end = self.source.span(node)
        self.insert(start, before)
        self.insert(end, after)

    def keep_comments(self, statement: ast.stmt, comments: list[str]) -> None:
        """Put comments on separate lines before a statement."""
        if comments:
            line, indent = self.source.line_start(self.source.span(statement)[0]), self.source.indent_of(statement)
            self.insert(line, "".join(f"{indent}{comment}{self.source.newline}" for comment in comments))

    # ---- arguments

    def rename_keyword(self, keyword: ast.keyword, name: str) -> None:
        """Rename a keyword argument; its value stays."""
        start = self.source.span(keyword)[0]
        self.replace(start, start + len(keyword.arg or ""), name)

    def add_argument(self, call: ast.Call, text: str) -> None:
        """Add `name=value` behind the last argument; on a separate line if the last argument is on one."""
        opening = self.source.opening_parenthesis(call)
        items, closing = self.source.bracket_items(opening)
        if not items:
            self.insert(opening.end, text)
            return
        last = items[-1]
        sole_argument = call.args[0] if len(call.args) == 1 and not call.keywords else None
        # `f(x for x in y)` becomes `f((x for x in y), name=value)`.
        if isinstance(sole_argument, ast.GeneratorExp) and self.source.span(sole_argument)[0] == opening.start:
            self.insert(opening.end, "(")
            self.insert(last.end, f"), {text}")
            return
        indent = self.source.text[self.source.line_start(last.start) : last.start]
        own_line = not indent.strip()
        stop = last.comma.end if last.comma else last.end
        if last.comma is None:
            self.insert(last.end, f",{self.source.newline}{indent}{text}" if own_line else f", {text}")
        elif own_line and self.source.line_of(closing.start) > self.source.line_of(stop):
            comment = self.source.comment_after(stop)
            self.insert(comment.end if comment else stop, f"{self.source.newline}{indent}{text},")
        else:
            self.insert(stop, f" {text},")

    def remove_items(self, items: list[BracketItem], indices: set[int]) -> None:
        """Remove several items of a list separated by commas, such as arguments; comments stay.

        `items`: all items of the list; `indices`: those to remove.
        """
        tail = len(items)  # from this index on all items are removed
        while tail - 1 in indices:
            tail -= 1
        comma = items[tail - 1].comma if 0 < tail < len(items) else None
        # The removed tail and the comma before it go in one edit, unless a comment in it has to stay.
        at_once = comma is not None and items[-1].comma is None and not self.has_comment(comma.start, items[-1].end)
        for index in sorted(indices):
            if index < tail or not at_once:
                item = items[index]
                self.delete(*self.extend_over_blanks(item.start, item.comma.end if item.comma else item.end))
        if comma is not None and at_once:
            self.delete(comma.start, items[-1].end)

    def has_comment(self, start: int, end: int) -> bool:
        return bool(self.source.comments(start, end))

    def change_arguments(self, call: ast.Call, indices: set[int], text: str) -> None:
        """Remove the arguments at these positions, and add the argument `text` unless it is empty."""
        opening, items = self.source.opening_parenthesis(call), self.source.argument_items(call)
        remaining = [item for index, item in enumerate(items) if index not in indices]
        if text and len(items) - 1 not in indices:
            self.add_argument(call, text)
        elif text:  # the last argument is removed: insert behind the last remaining one
            self.insert(remaining[-1].end if remaining else opening.end, f", {text}" if remaining else text)
        self.remove_items(items, indices)

    def extend_over_blanks(self, start: int, end: int) -> tuple[int, int]:
        """Extend a span to complete lines if nothing else is on them, else by the blanks behind it."""
        text = self.source.text
        line, stop = self.source.line_start(start), self.source.line_stop(end)
        if text[line:start].strip() == "" and text[end:stop].strip() == "":
            return line, self.source.next_line(end)
        while end < stop and text[end] in " \t":
            end += 1
        return start, end

    # ---- statements

    def insert_before(self, statement: ast.stmt, lines: list[str]) -> None:
        """Insert statements before another one: on lines of their own, or with `;` if text precedes it on its line."""
        start = self.source.span(statement)[0]
        line = self.source.line_start(start)
        indent = self.source.text[line:start]
        if indent.strip():  # `if x: statement` or `a; statement`
            self.insert(start, "".join(f"{text}; " for text in lines))
        else:
            self.insert(line, "".join(f"{indent}{text}".rstrip() + self.source.newline for text in lines))

    def insert_after(self, statement: ast.stmt, lines: list[str]) -> None:
        """Insert statements behind another one, and behind a comment on its line."""
        end = self.source.span(statement)[1]
        following = next(self.source.tokens_from(end), None)
        same_line = following is not None and following.start < self.source.line_stop(end) and following.text == ";"
        indent = self.own_indent(statement)
        if same_line or indent is None:
            self.insert(end, "".join(f"; {text}" for text in lines))
            return
        stop, newline = self.source.line_stop(end), self.source.newline
        self.insert(stop, "".join(newline + f"{indent}{text}".rstrip() for text in lines))

    def own_indent(self, statement: ast.stmt) -> str | None:
        """Return the indent of a statement's first line; None in `if x: statement`."""
        source, line = self.source, self.source.line_start(self.source.span(statement)[0])
        for item in (statement, *source.block_around(statement)):
            start = source.span(item)[0]
            if source.line_start(start) == line and not source.text[line:start].strip():
                return source.text[line:start]
        return None

    def remove_statement(self, statement: ast.stmt) -> None:
        """Remove a statement, keeping its comments on separate lines; leave `pass` if its block would be empty."""
        start, end = self.source.span(statement)
        self.removed.add(statement)
        self.keep_comments(statement, [comment.text for comment in self.source.comments(start, end)])
        is_empty = self.removed.issuperset(self.source.block_around(statement))
        if is_empty and not isinstance(self.source.parents[statement], ast.Module):
            self.replace(start, end, "pass")
            return
        following = next(self.source.tokens_from(end), None)
        if following is not None and following.text == ";" and following.start <= self.source.line_stop(end):
            end = following.end
        else:
            before = self.source.token_before(start)
            if before is not None and before.text == ";":
                start = before.start
        self.delete(*self.extend_over_blanks(start, end))

    def unwrap(self, block: ast.With | ast.AsyncWith) -> None:
        """Remove `with …:` and unindent its body."""
        source, body = self.source, block.body
        start, first = source.span(block)[0], source.span(body[0])[0]
        colon = self.find_colon(block)
        if body[0].lineno == source.line_of(colon.start):  # all on one line
            self.delete(start, first)
            return
        header_end = source.next_line(colon.end)
        comments = [token.text for token in source.comments(start, header_end)]
        indent = source.text[source.line_start(start) : start]
        comment_lines = "".join(f"{indent}{comment}{source.newline}" for comment in comments)
        self.replace(source.line_start(start), header_end, comment_lines)
        outer, inner = source.indent_of(block), source.indent_of(body[0])
        self.unindent(header_end, source.span(block)[1], outer, inner)

    def find_colon(self, block: ast.With | ast.AsyncWith) -> Token:
        """Return the colon that ends the header of a `with`."""
        last = block.items[-1]
        offset = self.source.span(last.optional_vars or last.context_expr)[1]
        return next(token for token in self.source.tokens_from(offset) if token.text == ":")

    def unindent(self, start: int, end: int, new_indent: str, old_indent: str) -> None:
        """Replace `old_indent` by `new_indent` in each line of a span, and in comments directly behind the span."""
        source = self.source
        in_strings = self.lines_within_strings(start, end)
        for line in range(source.line_of(start), len(source.line_starts) + 1):
            begin = source.line_starts[line - 1]
            text = source.text[begin : source.line_stop(begin)]
            if begin >= end and (not text.strip().startswith("#") or not text.startswith(old_indent)):
                break
            if line not in in_strings and text.startswith(old_indent):
                self.replace(begin, begin + len(old_indent), new_indent)

    def lines_within_strings(self, start: int, end: int) -> set[int]:
        """Return the lines that begin inside a string, where white space must not change."""
        lines: set[int] = set()
        opened: list[Token] = []  # beginnings of f-strings, which are several tokens from Python 3.12 on
        for token in self.source.tokens_between(start, end):
            name = tokenize.tok_name[token.kind]
            if name.endswith("STRING_START"):
                opened.append(token)
            elif name == "STRING" or (name.endswith("STRING_END") and opened):
                first = token if name == "STRING" else opened.pop()
                lines.update(range(self.source.line_of(first.start) + 1, self.source.line_of(token.end - 1) + 1))
        return lines

    # ---- the new text

    def apply(self, former_lines: list[int]) -> tuple[str, list[int]]:
        """Return the new text, and for each of its lines the line of the original from which it comes.

        `former_lines`: the same for the lines of the text before these edits.
        """
        source, position = self.source, 0
        original_lines = [former_lines[0]]  # of the new lines that have begun so far
        pieces: list[str] = []
        end_of_text = Edit(len(source.text), len(source.text), "")
        for edit in [*sorted(self.made, key=lambda edit: (edit.start, edit.end)), end_of_text]:
            pieces += [source.text[position : edit.start], edit.text]
            original_lines += former_lines[source.line_of(position) : source.line_of(edit.start)]
            original_lines += [former_lines[source.line_of(edit.start) - 1]] * len(LINE_END.findall(edit.text))
            position = edit.end
            # If the text so far ends with a line end, the new line comes from the line of the text behind the edit.
            written = next((piece for piece in reversed(pieces) if piece), "")
            if not written or written.endswith(("\n", "\r")):
                original_lines[-1] = former_lines[source.line_of(position) - 1]
        return "".join(pieces), original_lines
