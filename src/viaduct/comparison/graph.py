"""The compiled graph that GE, the graph engine of an Ascend NPU, writes.

It states which operators of the original network ("originals") each compiled operator computes.

    graph = read_graph(Path("ge_proto_00292_Build.txt"))     the text form of its ModelDef, or the same content as JSON

Only the fields that the comparison needs are kept. The text form is read operator by operator from a memory map, so a
large file takes little memory; JSON is loaded as a whole. A message of either form becomes a tree: field name -> value,
or list of values.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from viaduct.comparison.readers.listing import load_json
from viaduct.errors import BadData

MAX_DEPTH = 32  # of messages and lists within each other; the fields that are kept lie at most seven deep
MAX_OPERATORS = 2_000_000
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some editors write it at the beginning of a text

# Names of the attributes and fields that are read.
ORIGINALS, SPLIT_PART, L1_GROUP = "_datadump_original_op_names", "_datadump_is_multiop", "_L1_fusion_sub_graph_no"
ORIGIN_NAME, ORIGIN_INDEX = "_datadump_origin_name", "_datadump_origin_output_index"
ORIGIN_FORMAT, GE_FORMAT, ORIGIN_SHAPE = "_datadump_origin_format", "origin_format", "origin_shape"
ATTRIBUTES = {ORIGINALS, SPLIT_PART, L1_GROUP, ORIGIN_NAME, ORIGIN_INDEX, ORIGIN_FORMAT, GE_FORMAT, ORIGIN_SHAPE}
FIELDS = {
    "graph", "op", "name", "type", "id", "input", "attr", "key", "value", "s", "i", "b", "list",
    "input_desc", "output_desc", "layout", "shape", "dim",
}  # fmt: skip

Tree = Mapping[str, Any]


class Output(NamedTuple):
    """One output of an operator, and the tensor of the original network that it should equal.

    What the graph does not state is "" or ().
    """

    layout: str = ""
    shape: tuple[int, ...] = ()
    origin: str = ""  # the original operator's name
    origin_index: int | None = None  # number of the original operator's output; None: the same as this output's
    origin_layout: str = ""
    origin_shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """One operator of the compiled graph."""

    name: str
    type: str
    order: int  # GE's id: the order of execution
    inputs: tuple[tuple[str, int], ...]  # producer and number of its output; control edges are left out
    originals: tuple[str, ...] | None  # original operators; None: it kept its name; (): the compiler inserted it
    outputs: tuple[Output, ...]
    input_layouts: tuple[str, ...] = ()  # by number of the input
    is_split_part: bool = False  # the compiler split one original operator into several; this is one of them
    l1_group: str = ""  # number of its L1 fusion group, a kind of fusion by GE; "": it is in none

    @property
    def is_inserted(self) -> bool:
        return self.originals == ()

    @property
    def stands_for(self) -> tuple[str, ...]:
        """Return the names of the original operators that this one computes, whole or in part."""
        return (self.name,) if self.originals is None else self.originals


@dataclass(frozen=True)
class Graph:
    """Operators of a compiled graph."""

    path: Path
    name: str
    nodes: Mapping[str, Node]  # by name, in execution order
    notes: tuple[str, ...] = ()  # for the user: operators that were ignored


def read_graph(path: Path) -> Graph:
    """Read a graph in text or JSON form; raise BadData if it is neither, damaged or without operators."""
    try:
        with path.open("rb") as file:
            beginning = file.read(4096)
            start = beginning.removeprefix(BYTE_ORDER_MARK).lstrip()[:1]
            if start in (b"{", b"["):
                record = load_json(path)
                if not isinstance(record, dict):
                    raise BadData(f"{path.name} is JSON, but not a graph: it has no 'graph' list.")
                return _make_graph(path, record)
            if not start and len(beginning) < 4096:
                raise BadData(f"{path.name} is empty.")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
                return _make_graph(path, _TextParser(text, path).parse_message(0))
    except OSError as error:
        raise BadData(f"the graph {str(path)!r} cannot be read: {error.strerror}.") from None


def _make_graph(path: Path, tree: Tree) -> Graph:
    """Return the operators of all subgraphs in order of execution; if several have the same name, the first is kept.

    `tree`: the whole file. The text parser has already made nodes of its operators, which saves memory.
    """
    operators = [op for graph in (tree, *_list_values(tree, "graph")) for op in _list_values(graph, "op")]
    nodes = [op if isinstance(op, Node) else _make_node(op) for op in operators if isinstance(op, (Node, dict))]
    nodes = [node for node in nodes if node.name]
    if not nodes:
        raise BadData(
            f"{path.name} holds no operators.",
            "It should be ge_proto_*_Build.txt (made with DUMP_GE_GRAPH=2), or its JSON form.",
        )
    by_name: dict[str, Node] = {}
    for node in sorted(nodes, key=lambda node: node.order):
        by_name.setdefault(node.name, node)
    duplicates = len(nodes) - len(by_name)
    notes = (f"{path.name}: {duplicates} operators with the name of an earlier one are ignored",) if duplicates else ()
    return Graph(path, _keep_text(_read_value(tree, "name")), by_name, notes)


def _make_node(tree: Tree) -> Node:
    attributes = _read_attributes(tree)
    return Node(
        name=_keep_text(_read_value(tree, "name")),
        type=_keep_text(_read_value(tree, "type")),
        order=_parse_int(_read_value(tree, "id")) or 0,
        inputs=tuple(_read_inputs(tree)),
        originals=_read_originals(attributes),
        outputs=tuple(_read_output(desc) for desc in _list_values(tree, "output_desc") if isinstance(desc, dict)),
        input_layouts=tuple(_keep_text(_read_value(desc, "layout")) for desc in _list_values(tree, "input_desc")),
        is_split_part=_read_value(attributes.get(SPLIT_PART), "b") in (True, "true", "True", 1, "1"),
        l1_group=_keep_text(_read_value(attributes.get(L1_GROUP), "s")),
    )


def _read_inputs(tree: Tree) -> Iterator[tuple[str, int]]:
    for text in _list_values(tree, "input"):
        producer, _, number = _keep_text(text).rpartition(":")
        output = _parse_int(number)
        if producer and output is not None and output >= 0:  # ":-1" is a control edge
            yield producer.strip(), output


def _read_originals(attributes: Mapping[str, Tree]) -> tuple[str, ...] | None:
    if ORIGINALS not in attributes:
        return None
    names = _list_values(_read_value(attributes[ORIGINALS], "list"), "s")
    return tuple(text for name in names if (text := _keep_text(name)))


def _read_output(desc: Tree) -> Output:
    attributes = _read_attributes(desc)
    origin_layout = _read_value(attributes.get(ORIGIN_FORMAT), "s") or _read_value(attributes.get(GE_FORMAT), "s")
    return Output(
        layout=_keep_text(_read_value(desc, "layout")),
        shape=_read_shape(_read_value(desc, "shape"), "dim"),
        origin=_keep_text(_read_value(attributes.get(ORIGIN_NAME), "s")),
        origin_index=_parse_int(_read_value(attributes.get(ORIGIN_INDEX), "i")),
        origin_layout=_keep_text(origin_layout),
        origin_shape=_read_shape(_read_value(attributes.get(ORIGIN_SHAPE), "list"), "i"),
    )


def _read_shape(shape: Any, key: str) -> tuple[int, ...]:
    numbers = [_parse_int(dim) for dim in _list_values(shape, key)]
    return tuple(dim for dim in numbers if dim is not None)


def _read_attributes(tree: Tree) -> dict[str, Tree]:
    """Return the attributes by key. Each is a message with key and value, or in JSON also {key: value}."""
    attributes: dict[str, Tree] = {}
    for entry in _list_values(tree, "attr"):
        if isinstance(entry, dict) and "key" in entry:
            value = _read_value(entry, "value")
            attributes[_keep_text(_read_value(entry, "key"))] = value if isinstance(value, dict) else {}
        elif isinstance(entry, dict):
            attributes |= {key: value for key, value in entry.items() if isinstance(value, dict)}
    return attributes


def _list_values(tree: Any, key: str) -> list[Any]:
    """Return all values of a field; empty if it is missing or `tree` is not a message."""
    value = tree.get(key) if isinstance(tree, Mapping) else None
    return value if isinstance(value, list) else [] if value is None else [value]


def _read_value(tree: Any, key: str) -> Any:
    """Return the first value of a field; None if it is missing or `tree` is not a message."""
    values = _list_values(tree, key)
    return values[0] if values else None


def _keep_text(value: Any) -> str:
    """Return a string as it is, and "" for anything else."""
    return value if isinstance(value, str) else ""


def _parse_int(value: Any) -> int | None:
    try:
        return None if value is None or isinstance(value, bool) else int(value)
    except (TypeError, ValueError, OverflowError):
        return None


# One token: a name, string, bracket or number, with the blanks, comments and separators before it.
_TOKEN = re.compile(
    rb"[\s,;]*(?:\#[^\n]*(?:\n|\Z)[\s,;]*)*"
    rb"(?:([A-Za-z_][\w.]*)"
    rb"|(\"[^\"\\\n]*(?:\\.[^\"\\\n]*)*\"|'[^'\\\n]*(?:\\.[^'\\\n]*)*')"
    rb"|([{}<>\[\]:])"
    rb"|([-+.\d][\w.+-]*)"
    rb"|\Z)",
    re.DOTALL,
)
END, NAME, STRING, BRACKET, NUMBER = range(5)  # kinds of tokens: the numbers of _TOKEN's groups, 0 for none
# Everything up to and including the next bracket outside of strings and comments.
_BRACKET = re.compile(
    rb"[^{}<>\[\]\"'#]*"
    rb"(?:(?:\"[^\"\\\n]*(?:\\.[^\"\\\n]*)*\"|'[^'\\\n]*(?:\\.[^'\\\n]*)*'|\#[^\n]*(?:\n|\Z))[^{}<>\[\]\"'#]*)*"
    rb"([{}<>\[\]]|\Z)",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(rb"\s*:?\s*[{<]\s*key\s*:\s*\"([^\"\\\n]*)\"")
_STRING_START = re.compile(rb"\s*[\"']")
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|x[0-9A-Fa-f]{1,2}|.)", re.DOTALL)
_CONTROL_CHARACTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
OPENING, CLOSING = (b"{", b"<"), (b"}", b">")


class _TextParser:
    """Parser of protocol buffers in their text form: `name: value` and `name { … }`."""

    def __init__(self, text: mmap.mmap | bytes, path: Path) -> None:
        self.text, self.path = text, path
        self.position = len(BYTE_ORDER_MARK) if text[:3] == BYTE_ORDER_MARK else 0
        self.operators = 0

    def read_token(self) -> tuple[int, bytes]:
        """Return the next token and its kind: END, NAME, STRING, BRACKET or NUMBER."""
        match = _TOKEN.match(self.text, self.position)
        if match is None:
            raise self.make_damaged_error("neither a name nor a value")
        self.position = match.end()
        kind = match.lastindex or END
        return kind, match[kind] if kind else b""

    def make_damaged_error(self, why: str) -> BadData:
        """Return the error with the line at which reading stopped."""
        line = self.text[: self.position].count(b"\n") + 1
        return BadData(f"{self.path.name} stops being a graph at line {line}: {why}.")

    def parse_message(self, depth: int) -> dict[str, list[Any]]:
        """Parse a message up to its closing bracket, or at depth 0 up to the end of the file."""
        tree: dict[str, list[Any]] = {}
        while True:
            kind, token = self.read_token()
            if kind == END and depth:
                raise self.make_damaged_error("the file ends within a message; was it cut short?")
            if token in CLOSING and not depth:
                raise self.make_damaged_error("a bracket is closed that was not opened")
            if kind == END or token in CLOSING:
                return tree
            if kind == BRACKET and token == b"[":  # an extension or Any: [type.name] { … }
                self.skip_message()
                self.skip_value()
            elif kind != NAME:
                raise self.make_damaged_error(f"a field's name was expected, not {token[:20]!r}")
            else:
                self.parse_field(token.decode(), tree, depth)

    def parse_field(self, name: str, tree: dict[str, list[Any]], depth: int) -> None:
        if name not in FIELDS or (name == "attr" and self.is_unused_attribute()):
            self.skip_value()
            return
        value = self.parse_value(depth)
        if name == "op" and isinstance(value, dict):
            self.operators += 1
            if self.operators > MAX_OPERATORS:
                raise self.make_damaged_error(f"there are more than {MAX_OPERATORS:,} operators")
            value = _make_node(value)
        tree.setdefault(name, []).extend(value if isinstance(value, list) else [value])

    def is_unused_attribute(self) -> bool:
        """Return True if the attribute at the current position is not needed."""
        match = _ATTRIBUTE.match(self.text, self.position)
        return match is not None and match[1].decode("latin-1") not in ATTRIBUTES

    def parse_value(self, depth: int) -> Any:
        """Parse a message, a list, a string, or a number or name (both as text), at `depth` messages and lists."""
        if depth >= MAX_DEPTH:
            raise self.make_damaged_error(f"messages are nested more than {MAX_DEPTH} deep")
        kind, token = self.read_token()
        if token == b":" and kind == BRACKET:
            kind, token = self.read_token()
        if kind == BRACKET and token in OPENING:
            return self.parse_message(depth + 1)
        if kind == BRACKET and token == b"[":
            return list(self.parse_items(depth + 1))
        if kind in (END, BRACKET):
            raise self.make_damaged_error(f"a value was expected, not {token.decode() or 'the end of the file'}")
        return self.join_strings(token) if kind == STRING else token.decode()

    def join_strings(self, token: bytes) -> str:
        """Return a string joined with the strings that follow it: the text form writes long ones in pieces."""
        text = _unescape(token)
        while _STRING_START.match(self.text, self.position):
            text += _unescape(self.read_token()[1])
        return text

    def parse_items(self, depth: int) -> Iterator[Any]:
        while True:
            before = self.position
            kind, token = self.read_token()
            if kind == BRACKET and token == b"]":
                return
            self.position = before
            yield self.parse_value(depth)

    def skip_value(self) -> None:
        kind, token = self.read_token()
        if kind == BRACKET and token == b":":
            kind, token = self.read_token()
        if kind == BRACKET and token in (*OPENING, b"["):
            self.skip_message()
        elif kind == STRING:
            self.join_strings(token)
        elif kind in (END, BRACKET):
            raise self.make_damaged_error("a value was expected")

    def skip_message(self) -> None:
        """Skip to the bracket that closes a message or list; from bracket to bracket, much faster than by tokens."""
        depth = 1
        while depth:
            match = _BRACKET.match(self.text, self.position)
            if match is None or not match[1]:
                raise self.make_damaged_error("the file ends within a message; was it cut short?")
            self.position = match.end()
            depth += 1 if match[1] in b"{<[" else -1


def _unescape(token: bytes) -> str:
    inner = token[1:-1]
    if b"\\" in inner:
        inner = _ESCAPE.sub(_decode_escape, inner)
    return inner.decode("utf-8", "replace")


def _decode_escape(match: re.Match[bytes]) -> bytes:
    code = match[1]
    if code[:1] in b"01234567":
        return bytes([int(code, 8) & 255])
    if code[:1] == b"x" and len(code) > 1:
        return bytes([int(code[1:], 16)])
    return _CONTROL_CHARACTERS.get(code, code)
