"""Execution counts of the lines that a migration changed, by counters compiled into the files that hold such lines.

A counter counts the executions of a unit: a statement, an `except` clause, a `case`, or a part of an expression that
Python may skip. Such parts are a branch of `a if b else c`, the operands of `and` and `or` after the first, those of a
chained comparison after the second, the body of a lambda, the element and conditions of a comprehension, the guard of a
`case`. A change within a line belongs to the innermost unit around it: a number in a branch that was not taken does not
count as executed.

The counters of a process are in counts/PID.bin of the rehearsal's record folder, mapped into memory, so that a killed
process leaves them too.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import io
import json
import mmap
import os
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

CHANGED_SPANS_FILE, COUNTS_FOLDER = "edits.json", "counts"
# Names in `builtins` that the instrumented code uses: the array of counters, and a function that increments a counter.
COUNTERS_NAME, INCREMENT_NAME = "__viaduct_hits__", "__viaduct_hit__"
COUNTER_BYTES = 8
IGNORED_TOKENS = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
# By type of a node: the fields with expressions that Python may skip, other than operands.
SKIPPABLE_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {
    ast.IfExp: ("body", "orelse"),
    ast.Lambda: ("body",),
    **dict.fromkeys((ast.ListComp, ast.SetComp, ast.GeneratorExp), ("elt",)),
    ast.DictComp: ("key", "value"),
    ast.comprehension: ("ifs",),
    ast.match_case: ("guard",),
}
Position = tuple[int, int]  # line, from 1, and column in bytes of UTF-8, from 0
decode = importlib.util.decode_source  # returns the text of a file's bytes


@dataclass(frozen=True)
class Span:
    """A changed part of a line: lines count from 1, columns in characters from 0; `end` None is the end of the line."""

    line: int
    start: int = 0
    end: int | None = None


@dataclass(eq=False)
class Unit:
    """Code whose executions one counter counts, when they begin.

    In the syntax tree the node is `owner.attribute` or `owner.attribute[index]`.
    """

    node: ast.AST
    start: Position
    end: Position
    owner: Any = None
    attribute: str = ""
    index: int | None = None
    inner: list[Unit] = field(default_factory=list)
    is_for_type_checkers: bool = False  # within `if TYPE_CHECKING:`, which no run executes

    def find_innermost(self, position: Position) -> Unit:
        """Return the innermost unit around a position, which is this one if no inner unit has it."""
        for unit in self.inner:
            if unit.start <= position < unit.end:
                return unit.find_innermost(position)
        return self


@dataclass(frozen=True)
class ChangedUnits:
    """The units of a file that hold its changes."""

    units: list[Unit]
    unit_indices_by_line: dict[int, list[int]]  # for each changed line: the indices of its units in `units`


def find_changed_units(tree: ast.Module, text: str, spans: Iterable[Span]) -> ChangedUnits:
    """Find the units of changes; changed comments, blank lines, docstrings and code for type checkers have none."""
    root = Unit(tree, (0, 0), (1 << 30, 0))  # from the file's first line to beyond its last
    root.inner = list(iterate_units(tree))
    spans_by_line: dict[int, list[Span]] = {}
    for span in spans:
        spans_by_line.setdefault(span.line, []).append(span)
    indices: dict[Unit, int] = {}  # of the units
    unit_indices_by_line: dict[int, list[int]] = {}
    for line, position in find_changed_tokens(text, spans_by_line):
        unit = root.find_innermost(position)
        if unit is root or is_ignored(unit):
            continue
        index = indices.setdefault(unit, len(indices))
        if index not in unit_indices_by_line.setdefault(line, []):
            unit_indices_by_line[line].append(index)
    return ChangedUnits(list(indices), unit_indices_by_line)


def find_changed_tokens(text: str, spans_by_line: dict[int, list[Span]]) -> Iterator[tuple[int, Position]]:
    """Yield the changed lines of each token, with the position at which the token begins.

    A text that cannot be split into tokens, which Python would not compile either, has none.
    """
    rows = text.split("\n")  # splitlines() would also split at a form feed, unlike tokenize
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, IndentationError, SyntaxError):
        return
    for token in tokens:
        if token.type in IGNORED_TOKENS:
            continue
        (first_line, column), (last_line, end_column) = token.start, token.end
        for line in range(first_line, last_line + 1):
            start = column if line == first_line else 0
            end = end_column if line == last_line else 1 << 30  # beyond any column
            for span in spans_by_line.get(line, ()):
                if span.start < end and (span.end is None or span.end > start):
                    yield line, (first_line, len(rows[first_line - 1][:column].encode()))
                    break


def is_ignored(unit: Unit) -> bool:
    """Return True for strings that are statements, such as docstrings, and for code that only type checkers read."""
    value = unit.node.value if isinstance(unit.node, ast.Expr) else None
    return unit.is_for_type_checkers or (isinstance(value, ast.Constant) and isinstance(value.value, str))


# ---- finding units


def iterate_units(node: ast.AST, is_for_type_checkers: bool = False) -> Iterator[Unit]:
    """Yield the outermost units below a node; they hold their inner units."""
    if isinstance(node, ast.JoinedStr):  # before Python 3.12 the parts of an f-string have wrong columns
        return
    for attribute, value in ast.iter_fields(node):
        is_field_for_type_checkers = is_for_type_checkers or (attribute == "body" and is_type_checking_block(node))
        children = enumerate(value) if isinstance(value, list) else [(None, value)]
        for index, child in children:
            if not isinstance(child, ast.AST):
                continue
            if is_unit(node, attribute, index, child):
                start, end = find_extent(child)
                inner = list(iterate_units(child, is_field_for_type_checkers))
                yield Unit(child, start, end, node, attribute, index, inner, is_field_for_type_checkers)
            else:
                yield from iterate_units(child, is_field_for_type_checkers)


def is_type_checking_block(node: ast.AST) -> bool:
    """Return True for `if TYPE_CHECKING:` and `if typing.TYPE_CHECKING:`."""
    test = node.test if isinstance(node, ast.If) else None
    return "TYPE_CHECKING" in (getattr(test, "id", ""), getattr(test, "attr", ""))


def is_unit(parent: ast.AST, attribute: str, index: int | None, child: ast.AST) -> bool:
    """Return True for a statement, an `except` clause, a `case`, or an expression that Python may skip."""
    if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
        return True
    if isinstance(child, ast.Starred) or not isinstance(child, ast.expr):
        return False
    if isinstance(parent, (ast.BoolOp, ast.Compare)):
        return bool(index)  # the fields `values` and `comparators`, without their first element
    return attribute in SKIPPABLE_FIELDS.get(type(parent), ())


def find_extent(node: Any) -> tuple[Position, Position]:
    """Return the positions at which a node begins and ends; a function or class begins with its decorators."""
    if isinstance(node, ast.match_case):
        return find_extent(node.pattern)[0], find_extent(node.body[-1])[1]
    line, column = node.lineno, node.col_offset
    for decorator in getattr(node, "decorator_list", ()):
        if decorator.lineno < line:
            line, column = decorator.lineno, 0
    return (line, column), (node.end_lineno, node.end_col_offset)


# ---- inserting counters


def insert_counters(tree: ast.Module, changed: ChangedUnits, offset: int) -> ast.Module:
    """Insert a counter into each unit, in place; line numbers do not change. `offset`: the first counter's number."""
    for number, unit in enumerate(changed.units, offset):
        node = unit.node
        if isinstance(node, (ast.ExceptHandler, ast.match_case)):
            node.body.insert(0, count_statement(number, node.body[0]))
        elif isinstance(node, ast.stmt):
            body = getattr(unit.owner, unit.attribute)
            position = next(index for index, statement in enumerate(body) if statement is node)
            body.insert(skip_future_imports(body, position), count_statement(number, node))
        elif unit.index is None:
            setattr(unit.owner, unit.attribute, count_expression(number, node))
        else:
            getattr(unit.owner, unit.attribute)[unit.index] = count_expression(number, node)
    return ast.fix_missing_locations(tree)


def skip_future_imports(body: list[ast.stmt], index: int) -> int:
    """Return the index after `from __future__` imports, which must come first."""
    while index < len(body) and isinstance(node := body[index], ast.ImportFrom) and node.module == "__future__":
        index += 1
    return index


def count_statement(number: int, node: ast.stmt) -> ast.stmt:
    target = ast.Subscript(ast.Name(COUNTERS_NAME, ast.Load()), ast.Constant(number), ast.Store())
    return ast.copy_location(ast.AugAssign(target, ast.Add(), ast.Constant(1)), node)


def count_expression(number: int, node: Any) -> ast.expr:
    """Return the expression `increment(number) or node`, which has the value of `node`: `increment` returns None."""
    call = ast.Call(ast.Name(INCREMENT_NAME, ast.Load()), [ast.Constant(number)], [])
    return ast.copy_location(ast.BoolOp(ast.Or(), [call, node]), node)


# ---- called in a rehearsed process


class Counters:
    """The counters of this process; a forked process has counters in a separate file."""

    def __init__(self, record: str) -> None:
        entries = json.loads((Path(record) / CHANGED_SPANS_FILE).read_text(encoding="utf-8"))
        # By a file's path within the project: the number of its first counter, and its changed spans.
        self.files: dict[str, tuple[int, list[Span]]] = {
            name: (file["offset"], [Span(*span) for span in file["spans"]]) for name, file in entries["files"].items()
        }
        self.count: int = entries["count"]  # of counters, in all files together
        self._folder = Path(record) / COUNTS_FOLDER
        self.open()
        os.register_at_fork(after_in_child=self.open)

    def open(self) -> None:
        """Map this process's file into memory and make the counters available to compiled code."""
        self._folder.mkdir(exist_ok=True)
        file = os.open(self._folder / f"{os.getpid()}.bin", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        size = max(1, self.count) * COUNTER_BYTES
        os.ftruncate(file, size)
        counters = memoryview(mmap.mmap(file, size)).cast("Q")
        os.close(file)

        def increment(number: int) -> None:
            counters[number] += 1

        setattr(builtins, COUNTERS_NAME, counters)
        setattr(builtins, INCREMENT_NAME, increment)

    def compile(self, data: bytes, path: str, project_path: str | None) -> CodeType:
        """Compile a file, with counters where it has changes; `project_path` is its path within the project."""
        if project_path not in self.files:
            return compile_plain(data, path)
        offset, spans = self.files[project_path]
        tree = ast.parse(data, path)
        changed = find_changed_units(tree, decode(data), spans)
        return compile_plain(insert_counters(tree, changed, offset), path)


def compile_plain(source: bytes | ast.Module, path: str) -> CodeType:
    """Compile a file or its syntax tree as Python would."""
    code: CodeType = compile(source, path, "exec", dont_inherit=True)
    return code


# ---- called by the process that starts a rehearsal


def save_changed_spans(record: str, files: Mapping[str, Sequence[Span]], unit_counts: Mapping[str, int]) -> None:
    """Write edits.json, each file's changed spans and the number of its first counter.

    `files` and `unit_counts` map a file's path within the project to its changed spans and its number of units.
    """
    entries, offset = {}, 0
    for name, spans in files.items():
        entries[name] = {"offset": offset, "spans": [[span.line, span.start, span.end] for span in spans]}
        offset += unit_counts[name]
    Path(record, CHANGED_SPANS_FILE).write_text(json.dumps({"files": entries, "count": offset}), encoding="utf-8")


def read_counts(record: str) -> list[int]:
    """Return the sum of each counter over all processes; an empty list if none has counters."""
    sums: list[int] = []
    for path in sorted((Path(record) / COUNTS_FOLDER).glob("*.bin")):
        counts = memoryview(path.read_bytes()).cast("Q")
        sums = [a + b for a, b in zip(sums, counts, strict=True)] if sums else list(counts)
    return sums
