"""One Python file as text, syntax tree (`ast`) and tokens, all addressed by offsets into the text.

    source = Source("import torch")
    source.text_of(source.tree.body[0])  # "import torch"

Offsets count characters; `ast` has lines and columns in bytes. A span is (start, end): `text[start:end]`.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import TypeVar

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
ImportNode = ast.Import | ast.ImportFrom
LINE_END = re.compile(r"\r\n|\r|\n")
# Fields that are not visited: they hold no nodes, or operators and contexts, which `ast` shares between nodes.
LEAF_FIELDS = {
    "ctx", "op", "ops", "id", "attr", "arg", "name", "asname", "module", "level", "kind", "n", "s", "conversion",
    "type_comment", "type_ignores", "is_async", "simple", "rest", "kwd_attrs",
}  # fmt: skip
PYTHON2_ERRORS = ("call to 'print'", "call to 'exec'", "multiple exception types", "leading zeros", "inconsistent use")
"""Parts of the parser's error messages about constructs of Python 2. PYTHON2_LINE matches a line with one."""
PYTHON2_LINE = re.compile(
    r"^\s*(?:print\s+[^\s(=.\[]|print\s*>>|exec\s+[^\s(=.\[]|raise\s+[\w.]+\s*,|except\s+[^:]+,\s*\w+\s*:)"
    r"|<>|`|\b\d+[lL]\b|\b0[0-7]+\b|\b[uU][rR]['\"]|^\s*def\s+\w+\(.*\(\w+\s*,"
)
LAYOUT_TOKENS = {tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
"""Kinds of tokens that are not code."""


class Unparsable(Exception):
    """The text is not Python 3 as this interpreter parses it.

    The exception's text is the reason, mostly with the line; `zh` is the same in Chinese. Messages begin with
    `prefix` and end with `remedy`.
    """

    prefix = "cannot be read as Python 3: "
    prefix_zh = "无法按 Python 3 解析:"
    remedy = "convert it (2to3) or repair it first"
    remedy_zh = "请先用 2to3 转换或修正"

    def __init__(self, reason: str, zh: str = "") -> None:
        super().__init__(reason)
        self.zh = zh or reason


class Undecodable(Unparsable):
    """The bytes are not text in UTF-8, or in the encoding that the first lines name."""

    prefix = prefix_zh = ""
    remedy = "save it as UTF-8, or name its encoding in the first line (# -*- coding: gbk -*-)"
    remedy_zh = "请另存为 UTF-8,或在首行声明其编码(# -*- coding: gbk -*-)"


class UndecodableText(Undecodable):
    """The bytes of a file other than Python, such as a shell script, are not UTF-8."""

    remedy = "save it as UTF-8"
    remedy_zh = "请另存为 UTF-8"


class NotText(Undecodable):
    """The bytes are binary data, although the file is named like a script."""

    remedy = "if it is a script, save it as text in UTF-8"
    remedy_zh = "若它是脚本,请以 UTF-8 文本保存"


@dataclass(frozen=True, slots=True)
class Token:
    """One token of `tokenize`, with offsets."""

    kind: int  # a constant of the module `token`
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class BracketItem:
    """One item between commas, such as an argument, from its first to its last token, and the comma behind it."""

    start: int
    end: int
    comma: Token | None


def decode(data: bytes) -> tuple[str, str]:
    """Return the text and its encoding, as Python itself detects it; raise Undecodable."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return data.decode(encoding), encoding
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Undecodable(f"line {line}: cannot be decoded: {error}", f"第 {line} 行:无法解码:{error}") from None
    except (SyntaxError, LookupError) as error:
        raise Undecodable(f"cannot be decoded: {error}", f"无法解码:{error}") from None


def lines_of(text: str) -> list[str]:
    """Return the lines of a text as Python counts them: a form feed does not end one."""
    lines = LINE_END.split(text)
    return lines[:-1] if lines[-1] == "" else lines


def parse(text: str) -> ast.Module:
    """Parse a text; raise Unparsable or NotText."""
    if "\0" in text:
        raise NotText("holds NUL bytes: not a text file", "含有 NUL 字节,不是文本文件")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about invalid escapes in the script's strings
            return ast.parse(text)
    except SyntaxError as error:
        version, version_zh = ("this is Python 2: ", "这是 Python 2:") if is_python2(text, error) else ("", "")
        raise Unparsable(
            f"line {error.lineno}: {version}{error.msg}", f"第 {error.lineno} 行:{version_zh}{error.msg}"
        ) from None
    except (RecursionError, MemoryError):
        raise Unparsable("is nested too deeply for the parser", "嵌套过深,解析器无法处理") from None
    except ValueError as error:
        raise Unparsable(str(error)) from None


def is_python2(text: str, error: SyntaxError) -> bool:
    """Return True if the parser's error or the line that does not parse looks like Python 2."""
    lines = LINE_END.split(text)
    line = lines[error.lineno - 1] if error.lineno and error.lineno <= len(lines) else ""
    return any(phrase in (error.msg or "") for phrase in PYTHON2_ERRORS) or PYTHON2_LINE.search(line) is not None


def tokenize_part(text: str, offset: int) -> Iterator[Token]:
    """Yield the tokens of a part of a text that begins at `offset`, with offsets into the complete text."""
    starts = [0, *(match.end() for match in LINE_END.finditer(text))]
    lines = iter([text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=True)])
    for kind, string, start, end, _ in tokenize.generate_tokens(lambda: next(lines, "")):
        if start[0] <= len(starts):
            # tokenize counts characters, not bytes
            position = starts[start[0] - 1] + start[1], starts[min(end[0], len(starts)) - 1] + end[1]
            yield Token(kind, string, offset + min(position[0], len(text)), offset + min(position[1], len(text)))


Node = TypeVar("Node", bound=ast.AST)
Item = TypeVar("Item")
NO_CHILDREN: list[ast.AST] = []  # shared, as half of the nodes have no children: a list for each would take megabytes
BLOCK_FIELDS = {"body", "orelse", "finalbody", "handlers"}
BLOCK_HOLDERS = (ast.mod, ast.stmt, ast.excepthandler, ast.match_case)  # what may hold blocks of statements
CHILD_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {ast.Constant: (), ast.Global: (), ast.Nonlocal: ()}
"""Cache of `child_fields`. These three types have no fields with nodes."""
NODES_WITH_NONE = {ast.Dict, ast.arguments}  # `{**x}` has the key None, `def f(*, x)` the default None


def child_fields(kind: type[ast.AST]) -> tuple[str, ...]:
    """Return the fields of a type of node that may hold nodes."""
    if kind not in CHILD_FIELDS:
        CHILD_FIELDS[kind] = tuple(name for name in kind._fields if name not in LEAF_FIELDS)
    return CHILD_FIELDS[kind]


def list_children(node: ast.AST) -> list[ast.AST]:
    """Return the children of a node without operators and contexts; much faster than ast.iter_child_nodes."""
    nodes: list[ast.AST] = []
    kind = node.__class__
    for name in CHILD_FIELDS[kind] if kind in CHILD_FIELDS else child_fields(kind):
        value = getattr(node, name, None)
        if value.__class__ is not list:
            if isinstance(value, ast.AST):
                nodes.append(value)
        elif kind in NODES_WITH_NONE:
            nodes += [item for item in value if isinstance(item, ast.AST)]
        else:
            nodes += value
    return nodes


def first_line(node: ast.stmt | ast.expr) -> int:
    """Return the first line of a node, including decorators."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def group_by_name(pairs: Iterable[tuple[str, Item]]) -> dict[str, list[Item]]:
    groups: dict[str, list[Item]] = {}
    for name, item in pairs:
        groups.setdefault(name, []).append(item)
    return groups


class Source:
    """A parsed text."""

    def __init__(self, text: str, tree: ast.Module | None = None, former: Source | None = None) -> None:
        """Parse a text unless its `tree` is given; a tree may share nodes with that of a former text (reparse.py)."""
        self.text = text
        self.tree = parse(text) if tree is None else tree
        self.line_starts = [0, *(match.end() for match in LINE_END.finditer(text))]  # offsets
        self.is_ascii = text.isascii()
        self.former = former  # None once `children` was computed
        self.chunks: dict[int, tuple[list[Token], list[int]]] = {}  # see chunk

    # ---- offsets and lines

    def offset(self, line: int, column: int) -> int:
        """Return the offset in the text of ast's line (from 1) and column (in UTF-8 bytes)."""
        start = self.line_starts[line - 1]
        if self.is_ascii:
            return start + column
        piece = self.text[start : start + column]  # no character is shorter than a byte
        if piece.isascii():
            return start + column
        return start + len(piece.encode()[:column].decode(errors="ignore"))

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return start and end of a node in the text, with its decorators and without parentheses around it."""
        decorators = getattr(node, "decorator_list", None)
        if decorators:
            start = self.text.rindex("@", 0, self.span(decorators[0])[0])
        else:
            start = self.offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]
        return start, self.offset(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]

    def text_of(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.text[start:end]

    def line_of(self, offset: int) -> int:
        """Return the number, from 1, of the line that holds the offset."""
        return bisect_right(self.line_starts, offset)

    def line_start(self, offset: int) -> int:
        """Return the offset at which this offset's line begins."""
        return self.line_starts[self.line_of(offset) - 1]

    def line_stop(self, offset: int) -> int:
        """Return the offset behind the last character of this offset's line, before its line end."""
        match = LINE_END.search(self.text, offset)
        return match.start() if match else len(self.text)

    def next_line(self, offset: int) -> int:
        """Return the offset at which the line after this offset's line begins."""
        match = LINE_END.search(self.text, offset)
        return match.end() if match else len(self.text)

    def indent_of(self, node: ast.AST) -> str:
        """Return the white space at the beginning of a statement's first line."""
        start = self.span(node)[0]
        line = self.text[self.line_start(start) : start]
        return line[: len(line) - len(line.lstrip(" \t\f"))]

    @cached_property
    def newline(self) -> str:
        """First line end of the text; new lines are written with it."""
        match = LINE_END.search(self.text)
        return match.group() if match else "\n"

    @cached_property
    def indent_unit(self) -> str:
        """White space by which the first indented block is indented; four blanks if there is none."""
        for node in ast.walk(self.tree):
            body = getattr(node, "body", None)
            if isinstance(node, ast.stmt) and isinstance(body, list) and body[0].lineno > node.lineno:
                inner_indent, outer_indent = self.indent_of(body[0]), self.indent_of(node)
                if inner_indent.startswith(outer_indent) and len(inner_indent) > len(outer_indent):
                    return inner_indent[len(outer_indent) :]
        return "    "

    # ---- the tree

    @cached_property
    def children(self) -> dict[ast.AST, list[ast.AST]]:
        """Children of every node; the keys are in the order of the text, outer nodes before inner ones."""
        children_of: dict[ast.AST, list[ast.AST]] = {self.tree: [*self.tree.body]}
        leaves = {kind for kind, names in CHILD_FIELDS.items() if not names}
        for statement, former_items in self.find_known_parts():
            if former_items:
                children_of.update(former_items)
                continue
            stack: list[ast.AST] = [statement]
            while stack:
                node = stack.pop()
                children = list_children(node) if node.__class__ not in leaves else NO_CHILDREN
                children_of[node] = children or NO_CHILDREN
                stack += children[::-1]
        self.former = None  # a chain of former texts would keep all their trees
        return children_of

    def find_known_parts(self) -> Iterator[tuple[ast.stmt, list[tuple[ast.AST, list[ast.AST]]]]]:
        """Yield each top-level statement with its (node, children) pairs in the former text; [] if it is new."""
        if self.former is None:
            yield from ((statement, []) for statement in self.tree.body)
            return
        former_items, positions = [*self.former.children.items()], self.former.positions
        starts = [positions[statement] for statement in self.former.tree.body]
        ends = dict(zip(self.former.tree.body, [*starts[1:], len(former_items)], strict=True))
        for statement in self.tree.body:
            yield statement, former_items[positions[statement] : ends[statement]] if statement in ends else []

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(self.children)

    @cached_property
    def by_type(self) -> dict[type[ast.AST], list[ast.AST]]:
        """Nodes by their type, in the order of the text."""
        groups: dict[type[ast.AST], list[ast.AST]] = defaultdict(list)
        for node in self.children:
            groups[node.__class__].append(node)
        return dict(groups)

    def nodes_of_type(self, kind: type[Node]) -> list[Node]:
        return self.by_type.get(kind, [])  # type: ignore[return-value]

    def nodes_of_types(self, *kinds: type[ast.AST]) -> list[ast.AST]:
        nodes = [node for kind in kinds for node in self.by_type.get(kind, ())]
        return sorted(nodes, key=self.positions.__getitem__)

    @cached_property
    def functions(self) -> list[FunctionNode]:
        return [*self.nodes_of_types(ast.FunctionDef, ast.AsyncFunctionDef)]  # type: ignore[list-item]

    @cached_property
    def functions_by_name(self) -> dict[str, list[FunctionNode]]:
        return group_by_name((function.name, function) for function in self.functions)

    @cached_property
    def classes_by_name(self) -> dict[str, ast.ClassDef]:
        return {node.name: node for node in self.nodes_of_type(ast.ClassDef)}

    @cached_property
    def imports(self) -> list[ImportNode]:
        return [*self.nodes_of_types(ast.Import, ast.ImportFrom)]  # type: ignore[list-item]

    @cached_property
    def positions(self) -> dict[ast.AST, int]:
        """Position of each node in `nodes`."""
        return {node: index for index, node in enumerate(self.children)}

    @cached_property
    def ends(self) -> list[int]:
        """Position behind the last node within each of `nodes`."""
        stops = list(range(1, len(self.nodes) + 1))
        for index in range(len(self.nodes) - 1, -1, -1):
            below = self.children[self.nodes[index]]
            if below:
                stops[index] = stops[self.positions[below[-1]]]
        return stops

    def within(self, node: ast.AST) -> list[ast.AST]:
        """Return a node and all nodes below it in the order of the text; much faster than ast.walk."""
        first = self.positions[node]
        return self.nodes[first : self.ends[first]]

    @cached_property
    def reads(self) -> dict[str, list[ast.Name]]:
        return group_by_name((node.id, node) for node in self.nodes_of_type(ast.Name) if isinstance(node.ctx, ast.Load))

    @cached_property
    def attributes(self) -> dict[str, list[ast.Attribute]]:
        return group_by_name((node.attr, node) for node in self.nodes_of_type(ast.Attribute))

    def is_within(self, node: ast.AST, region: list[ast.stmt]) -> bool:
        """Return True if a node lies in `region`, a list of consecutive statements."""
        return (
            bool(region) and self.positions[region[0]] <= self.positions[node] < self.ends[self.positions[region[-1]]]
        )

    def select_within(self, nodes: list[Node], region: list[ast.stmt]) -> list[Node]:
        """Return the nodes in `region`, a list of consecutive statements. `nodes` are in the order of the text."""
        if not region:
            return []
        begin, end = self.positions[region[0]], self.ends[self.positions[region[-1]]]
        first = bisect_left(nodes, begin, key=self.positions.__getitem__)
        return nodes[first : bisect_left(nodes, end, key=self.positions.__getitem__)]

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node, inner in self.children.items() for child in inner}

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the parent of a node, its parent, and so on."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def statement_around(self, node: ast.AST) -> ast.stmt:
        """Return the innermost statement that contains the node; the node itself if it is a statement."""
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def function_around(self, node: ast.AST) -> FunctionNode | None:
        """Return the innermost function around a node, ignoring lambdas; None at module level."""
        return next((parent for parent in self.ancestors(node) if isinstance(parent, FunctionNode)), None)

    def class_around(self, node: ast.AST) -> ast.ClassDef | None:
        return next((parent for parent in self.ancestors(node) if isinstance(parent, ast.ClassDef)), None)

    def block_around(self, statement: ast.stmt) -> list[ast.stmt]:
        return self.blocks.get(statement) or [statement]

    @cached_property
    def blocks(self) -> dict[ast.AST, list[ast.stmt]]:
        """Statement -> all statements of the block that contains it, such as the body of an `if`."""
        block_of: dict[ast.AST, list[ast.stmt]] = {}
        for kind, nodes in self.by_type.items():
            for name in BLOCK_FIELDS.intersection(kind._fields) if issubclass(kind, BLOCK_HOLDERS) else ():
                for node in nodes:
                    statements = getattr(node, name)
                    block_of.update(dict.fromkeys(statements, statements))
        return block_of

    def is_in_f_string(self, node: ast.AST) -> bool:
        """Return True for a node within an f-string; Python before 3.12 gives it a wrong position."""
        return any(isinstance(parent, ast.JoinedStr) for parent in self.ancestors(node))

    # ---- tokens

    @cached_property
    def chunk_starts(self) -> list[int]:
        """Offsets at which chunks begin. A chunk is a number of top-level statements that are tokenized on demand."""
        offsets, line = [0], 0
        for statement in self.tree.body:
            first = first_line(statement)
            start = self.line_starts[first - 1]
            is_continued = first > 1 and self.text.endswith("\\", 0, start - len(self.newline))
            if first > line and statement.col_offset == 0 and not is_continued:
                offsets.append(start)
            line = statement.end_lineno or first
        return sorted({*offsets})

    def chunk(self, number: int) -> tuple[list[Token], list[int]]:
        """Return the tokens of a chunk, and the offset of each token."""
        if number not in self.chunks:
            start = self.chunk_starts[number]
            end = self.chunk_starts[number + 1] if number + 1 < len(self.chunk_starts) else len(self.text)
            tokens = list(tokenize_part(self.text[start:end], start))
            self.chunks[number] = tokens, [token.start for token in tokens]
        return self.chunks[number]

    def chunk_at(self, offset: int) -> int:
        return bisect_right(self.chunk_starts, offset) - 1

    def all_tokens_from(self, offset: int) -> Iterator[Token]:
        """Yield the tokens that begin at the offset or after it."""
        for number in range(self.chunk_at(offset), len(self.chunk_starts)):
            tokens, starts = self.chunk(number)
            yield from map(tokens.__getitem__, range(bisect_left(starts, offset), len(tokens)))

    def tokens_from(self, offset: int) -> Iterator[Token]:
        """Return the tokens that begin at the offset or after it, without comments and layout."""
        return (token for token in self.all_tokens_from(offset) if token.kind not in LAYOUT_TOKENS)

    def token_before(self, offset: int) -> Token | None:
        """Return the last token that begins before the offset, without comments and layout; None if there is none."""
        for number in range(self.chunk_at(offset), -1, -1):
            tokens, starts = self.chunk(number)
            before = map(tokens.__getitem__, range(bisect_left(starts, offset) - 1, -1, -1))
            previous = next((token for token in before if token.kind not in LAYOUT_TOKENS), None)
            if previous is not None:
                return previous
        return None

    def tokens_between(self, start: int, end: int) -> Iterator[Token]:
        return takewhile(lambda token: token.start < end, self.all_tokens_from(start))

    def has_code(self, text: str) -> bool:
        """Return True if the code contains a text that has no white space; comments and strings do not count."""
        return text in self.text and text in self.code

    @cached_property
    def code(self) -> str:
        """The text without comments, strings and white space."""
        tokens = (token for token in self.tokens_from(0) if "STRING" not in tokenize.tok_name[token.kind])
        return "".join(token.text for token in tokens)

    def comments(self, start: int, end: int) -> list[Token]:
        if "#" not in self.text[start:end]:
            return []
        return [token for token in self.tokens_between(start, end) if token.kind == tokenize.COMMENT]

    def comment_after(self, offset: int) -> Token | None:
        """Return the comment behind the offset on the same line; None without one."""
        tokens = self.tokens_between(offset, self.line_stop(offset))
        return next((token for token in tokens if token.kind == tokenize.COMMENT), None)

    def bracket_items(self, opening: Token) -> tuple[list[BracketItem], Token]:
        """Return the items between a pair of brackets, split at commas, and the closing bracket."""
        items: list[BracketItem] = []
        depth, first, last = 0, -1, -1  # number of open inner brackets; start (-1: none) and end of the current item
        for token in self.tokens_from(opening.end):
            if depth == 0 and token.kind == tokenize.OP and token.text in (")", "]", "}", ","):
                if first >= 0:
                    items.append(BracketItem(first, last, token if token.text == "," else None))
                first = -1
                if token.text != ",":
                    return items, token
                continue
            depth += token.text in ("(", "[", "{") and token.kind == tokenize.OP
            depth -= token.text in (")", "]", "}") and token.kind == tokenize.OP
            first, last = (token.start if first < 0 else first), token.end
        raise Unparsable("a bracket is not closed")

    def argument_items(self, call: ast.Call) -> list[BracketItem]:
        """Return the arguments of a call in the order of the text."""
        return self.bracket_items(self.opening_parenthesis(call))[0]

    def opening_parenthesis(self, call: ast.Call) -> Token:
        """Return the parenthesis that begins a call's arguments."""
        depth = 0
        for token in self.tokens_from(self.span(call.func)[1]):
            if token.text == "(" and depth <= 0:
                return token
            depth -= token.text == ")"  # closes a parenthesis around the function: `(f)(x)`
        raise Unparsable("a call without a parenthesis")
