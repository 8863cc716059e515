"""Mutations of Python files: one number, operator, branch, argument, statement or name is changed.

Every mutation is an edit of the text at a node of the syntax tree; the rest of the file is unchanged.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

# Text of an operator, and of the one that replaces it.
OPERATORS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"), ast.Pow: ("**", "*"), ast.MatMult: ("@", "*"),
}  # fmt: skip
COMPARISONS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
}  # fmt: skip
# Names of methods and functions, and of others that take the same arguments in most calls.
SIBLINGS = {
    "eval": "train", "train": "eval", "mean": "sum", "sum": "mean", "relu": "sigmoid", "tanh": "relu", "max": "min",
    "min": "max", "argmax": "argmin", "ReLU": "Tanh", "Tanh": "ReLU", "SiLU": "ReLU", "ELU": "CELU", "gelu": "relu",
    "leaky_relu": "relu", "clamp": "clip_", "zeros": "ones", "ones": "zeros", "rand": "randn", "randn": "rand",
    "softmax": "log_softmax", "log_softmax": "softmax", "bfloat16": "float16", "float32": "float64",
    "cross_entropy": "multi_margin_loss", "mse_loss": "l1_loss", "l1_loss": "mse_loss", "smooth_l1_loss": "mse_loss",
    "Adam": "AdamW", "AdamW": "Adam", "CosineAnnealingLR": "LinearLR", "LayerNorm": "RMSNorm", "any": "all",
    "zeros_": "ones_", "add_": "sub_", "copy_": "add_", "exp": "square", "abs": "square", "parameters": "buffers",
    "long": "int", "tril": "triu", "topk": "sort", "SUM": "MAX", "all_reduce": "isinstance",
}  # fmt: skip
WORDS = {"mean": "sum", "sum": "mean", "fan_out": "fan_in", "relu": "tanh", "min": "max", "net": "average"}


@dataclass(frozen=True)
class Mutation:
    """A file with one edit. `line` is its line in the file before the edit."""

    operator: str
    file: str
    line: int
    old: str
    new: str
    text: str  # the whole file

    def __str__(self) -> str:
        return f"{self.operator}, {self.file}:{self.line}: {self.old!r} -> {self.new!r}"


@dataclass(frozen=True)
class Edit:
    operator: str
    start: int
    end: int
    new: str


class Source:
    """A file's text and syntax tree, with the positions of its nodes in the text."""

    def __init__(self, text: str) -> None:
        self.text, self.tree = text, ast.parse(text)
        self._starts = [0]
        for line in text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        assert text.isascii(), "columns are bytes"

    def span(self, node: ast.AST) -> tuple[int, int]:
        start = self._starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        return start, self._starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]

    def code(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.text[start:end]

    def line_at(self, position: int) -> int:
        return self.text.count("\n", 0, position) + 1

    def replace(self, start: int, end: int, new: str) -> str:
        return self.text[:start] + new + self.text[end:]

    def walk(self) -> Iterator[ast.AST]:
        """Yield the nodes that may be changed.

        Left out are docstrings, imports, f-strings (whose columns are wrong before Python 3.12), and the guard of
        `__main__`.
        """
        waiting: list[ast.AST] = [self.tree]
        while waiting:
            node = waiting.pop(0)
            yield node
            for child in ast.iter_child_nodes(node):
                if isinstance(child, (ast.JoinedStr, ast.Import, ast.ImportFrom)) or is_docstring(child):
                    continue
                if isinstance(child, ast.If) and "__name__" in ast.unparse(child.test):
                    continue
                waiting.append(child)


def is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def change_numbers(source: Source, node: ast.AST) -> Iterator[Edit]:
    if not isinstance(node, ast.Constant) or isinstance(node.value, bool):
        return
    if isinstance(node.value, int):
        yield Edit("number", *source.span(node), str(node.value + 1))
        if node.value > 1:
            yield Edit("number", *source.span(node), str(node.value - 1))
    elif isinstance(node.value, float):
        yield Edit("number", *source.span(node), repr(node.value * 1.1) if node.value else "0.1")


def flip_switches(source: Source, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield Edit("switch", *source.span(node), str(not node.value))


def change_words(source: Source, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Constant) and node.value in WORDS:
        yield Edit("word", *source.span(node), repr(WORDS[str(node.value)]))


def change_operators(source: Source, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        yield change_operator_between("operator", source, node.left, node.right, *OPERATORS[type(node.op)])
    if isinstance(node, ast.AugAssign) and type(node.op) in OPERATORS:
        yield change_operator_between("operator", source, node.target, node.value, *OPERATORS[type(node.op)])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield Edit("operator", *source.span(node), source.code(node.operand))


def change_operator_between(kind: str, source: Source, left: ast.AST, right: ast.AST, old: str, new: str) -> Edit:
    """Return the edit that changes an operator between two operands; brackets around these are unchanged."""
    start = source.text.index(old, source.span(left)[1], source.span(right)[0])
    return Edit(kind, start, start + len(old), new)


def change_comparisons(source: Source, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        yield change_operator_between(
            "comparison", source, node.left, node.comparators[0], *COMPARISONS[type(node.ops[0])]
        )


def change_branches(source: Source, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, (ast.If, ast.IfExp)):
        yield Edit("branch", *source.span(node.test), f"not ({source.code(node.test)})")


def drop_statements(source: Source, node: ast.AST) -> Iterator[Edit]:
    is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    if is_call or isinstance(node, ast.AugAssign):
        yield Edit("statement", *source.span(node), "pass")
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Attribute, ast.Subscript)):
        yield Edit("statement", *source.span(node), "pass")


def swap_statements(source: Source, node: ast.AST) -> Iterator[Edit]:
    body = getattr(node, "body", None)
    if not isinstance(body, list):
        return
    for first, second in pairwise(body):
        if first.end_lineno < second.lineno and not any(map(is_docstring, (first, second))):
            if isinstance(first, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)):
                continue
            (a, b), (c, d) = source.span(first), source.span(second)
            yield Edit("order", a, d, source.text[c:d] + source.text[b:c] + source.text[a:b])


def swap_arguments(source: Source, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Call) and len(node.args) > 1 and not any(isinstance(a, ast.Starred) for a in node.args):
        (a, b), (c, d) = source.span(node.args[0]), source.span(node.args[1])
        if source.text[a:b] != source.text[c:d]:
            yield Edit("arguments", a, d, source.text[c:d] + source.text[b:c] + source.text[a:b])


def drop_arguments(source: Source, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Call) and node.keywords and node.keywords[-1].arg:
        before = [*node.args, *(keyword.value for keyword in node.keywords[:-1])]
        if before:
            yield Edit("arguments", source.span(before[-1])[1], source.span(node.keywords[-1])[1], "")


def change_names(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Replace the name of a method by another of SIBLINGS."""
    if isinstance(node, ast.Attribute) and node.attr in SIBLINGS:
        end = source.span(node)[1]
        yield Edit("name", end - len(node.attr), end, SIBLINGS[node.attr])


def change_variables(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Replace a variable that is read by another variable of the same function."""
    if not isinstance(node, ast.FunctionDef):
        return
    own = [name for name in ast.walk(node) if isinstance(name, ast.Name)]
    stored = sorted({name.id for name in own if isinstance(name.ctx, ast.Store)} | {a.arg for a in node.args.args})
    inside = {id(part) for text in ast.walk(node) if isinstance(text, ast.JoinedStr) for part in ast.walk(text)}
    for name in own:
        if isinstance(name.ctx, ast.Load) and name.id in stored and len(stored) > 1 and id(name) not in inside:
            other = stored[(stored.index(name.id) + 1) % len(stored)]
            yield Edit("variable", *source.span(name), other)


KINDS: tuple[Callable[[Source, ast.AST], Iterator[Edit]], ...] = (
    change_numbers,
    flip_switches,
    change_words,
    change_operators,
    change_comparisons,
    change_branches,
    drop_statements,
    swap_statements,
    swap_arguments,
    drop_arguments,
    change_names,
    change_variables,
)


def find_mutations(tree: Path) -> list[Mutation]:
    """Return every mutation of the Python files of a tree, by file."""
    found = []
    for path in sorted(tree.rglob("*.py")):
        source = Source(path.read_text())
        for node in source.walk():
            for kind in KINDS:
                found += [as_mutation(source, path.relative_to(tree).as_posix(), edit) for edit in kind(source, node)]
    return [mutation for mutation in found if is_python(mutation.text)]


def as_mutation(source: Source, file: str, edit: Edit) -> Mutation:
    text = source.replace(edit.start, edit.end, edit.new)
    old = source.text[edit.start : edit.end]
    return Mutation(edit.operator, file, source.line_at(edit.start), old, edit.new, text)


def is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def shuffle(mutations: list[Mutation], seed: str) -> list[Mutation]:
    """Return the mutations in a random order in which operators and files take turns."""
    source = random.Random(seed)
    groups: dict[tuple[str, str], list[Mutation]] = {}
    for mutation in mutations:
        groups.setdefault((mutation.operator, mutation.file), []).append(mutation)
    waiting = list(groups.values())
    source.shuffle(waiting)
    for group in waiting:
        source.shuffle(group)
    found = []
    while waiting:
        found += [group.pop() for group in waiting]
        waiting = [group for group in waiting if group]
    return found
