"""Strings that name a CUDA device: `"cuda"`, `"cuda:0"`, `f"cuda:{rank}"`, `"cuda:%d" % rank`, `"cuda:" + rank`."""

from __future__ import annotations

import ast
import re

from viaduct.migration.lookups import argument_values, branches, dotted_name, literal_text
from viaduct.migration.source import Source

CUDA_DEVICE = re.compile(r"cuda(?::(?:\d+|%[dis]|\{[^{}]*\})?)?")  # "cuda", "cuda:", "cuda:0", "cuda:%d", "cuda:{}"
EXACT_CUDA_DEVICE = re.compile(r"cuda(?::\d+)?")  # "cuda", "cuda:0"
OPENING_QUOTE = re.compile(r"[rRbBfFuU]*(?:\"\"\"|'''|\"|')(?=cuda)")  # of a literal that begins with cuda
DEVICE_WORDS = {"device", "devices", "dev"}  # a name with one of these words, `train_device`, is a device's
WORD_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")  # in `deviceType`


def is_device_name(name: str) -> bool:
    """Return True for the name of a device variable, parameter or option: `--train-device`, `map_location`."""
    snake_case = WORD_BOUNDARY.sub("_", name).lower().strip("-_").replace("-", "_")
    return snake_case == "map_location" or bool(DEVICE_WORDS & set(snake_case.split("_")))


def device_literal(node: ast.AST | None) -> ast.expr | None:
    """Return the string literal with which an expression names a CUDA device, else None.

    For `"cuda:%d" % rank` it is the string on the left, for `f"cuda:{rank}"` the complete f-string.
    """
    if isinstance(node, ast.Constant):
        return node if CUDA_DEVICE.fullmatch(literal_text(node)) else None
    if isinstance(node, ast.JoinedStr):
        text = literal_text(node.values[0]) if node.values else ""
        is_constant = len(node.values) == 1 and EXACT_CUDA_DEVICE.fullmatch(text) is not None  # f"cuda"
        return node if is_constant or text.startswith("cuda:") else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
        return device_literal(node.left)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        return device_literal(node.func.value)
    return None


def is_cuda_device(node: ast.AST | None) -> bool:
    """Return True for the literals `"cuda"` and `"cuda:0"`, with any number."""
    return EXACT_CUDA_DEVICE.fullmatch(literal_text(node)) is not None


def device_expression(source: Source, literal: ast.expr) -> ast.expr:
    """Return the expression that a device's literal begins: `"cuda:%d" % rank`, `"cuda:{}".format(rank)`."""
    parent = source.parents.get(literal)
    if isinstance(parent, ast.BinOp) and parent.left is literal:
        return parent
    if isinstance(parent, ast.Attribute) and parent.attr == "format":
        call = source.parents.get(parent)
        return call if isinstance(call, ast.Call) and call.func is parent else literal
    return literal


def device_number_text(source: Source, node: ast.expr) -> str | None:
    """Return the code of the number in a device's text: "rank" for `f"cuda:{rank}"`, "" for "cuda"; None if unknown."""
    if isinstance(node, ast.Constant):
        return str(node.value).partition(":")[2]
    if isinstance(node, ast.JoinedStr):
        return find_number_in_f_string(node)
    if isinstance(node, ast.BinOp):
        values = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
        if isinstance(node.op, ast.Add) and isinstance(node.right, ast.Call) and dotted_name(node.right.func) == "str":
            values = node.right.args
    else:
        values = argument_values(node) if isinstance(node, ast.Call) else []
    return source.text_of(values[0]) if len(values) == 1 else None


def find_number_in_f_string(node: ast.JoinedStr) -> str | None:
    """Return the number in `f"cuda:{rank}"` and `f"cuda:0"`; None for any other f-string."""
    prefix, *others = node.values
    if not others and isinstance(prefix, ast.Constant):
        return str(prefix.value).partition(":")[2]
    number = others[0] if len(others) == 1 and literal_text(prefix) == "cuda:" else None
    if not isinstance(number, ast.FormattedValue) or number.format_spec is not None or number.conversion != -1:
        return None
    return ast.unparse(number.value)


def rename_cuda(source: Source, node: ast.expr, device: str) -> str | None:
    """Return the code of an expression that names a CUDA device, with `cuda` replaced; None if no edit is safe."""
    literal = device_literal(node)
    if literal is None or source.is_in_f_string(literal):
        return None
    text, start = source.text_of(node), source.span(literal)[0] - source.span(node)[0]
    opening = OPENING_QUOTE.match(text, start)
    return f"{text[: opening.end()]}{device}{text[opening.end() + len('cuda') :]}" if opening is not None else None


def string_branches(value: ast.expr | None) -> list[ast.Constant]:
    """Return the string literals that a value may be: "cuda" and "cpu" for `"cuda" if … else "cpu"`."""
    parts = branches(value) if value is not None else []
    return [part for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
