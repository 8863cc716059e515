"""Strings that name a CUDA device: `"cuda"`, `"cuda:0"`, `f"cuda:{rank}"`, `"cuda:%d" % rank`, `"cuda:" + rank`."""

from __future__ import annotations

import ast
import re

from viaduct.migration.lookups import branches, literal_text, mark_once
from viaduct.migration.rule import Site

CUDA_DEVICE = re.compile(r"cuda(?::(?:\d+|%[dis]|\{[^{}]*\})?)?")  # "cuda", "cuda:", "cuda:0", "cuda:%d", "cuda:{}"
EXACT_CUDA_DEVICE = re.compile(r"cuda(?::\d+)?")  # "cuda", "cuda:0"
OPENING_QUOTE = re.compile(r"[rRbBfFuU]*(?:\"\"\"|'''|\"|')(?=cuda)")  # of a literal that begins with cuda
DEVICE_WORDS = {"device", "devices", "dev"}  # a name with one of these words, `train_device`, is a device's
WORD_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")  # in `deviceType`


def is_device_name(name: str) -> bool:
    """Return True for the name of a device variable, parameter or option: `device`, `--train-device`, `deviceType`."""
    snake_case = WORD_BOUNDARY.sub("_", name).lower().strip("-_").replace("-", "_")
    return snake_case == "map_location" or bool(DEVICE_WORDS & set(snake_case.split("_")))


def device_literal(node: ast.AST | None) -> ast.expr | None:
    """Return the string literal of an expression that names a CUDA device, else None.

    For `"cuda:%d" % rank` it is the string to the left, for `f"cuda:{rank}"` the complete f-string.
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


def rename_device(site: Site, literal: ast.expr, device: str) -> bool:
    """Replace `cuda` at the beginning of a literal; return False if it stays.

    A literal that cannot be edited is reported, except on a line that rules leave alone.
    """
    if site.file.is_left_alone(literal):
        return False
    opening = OPENING_QUOTE.match(site.text_of(literal)) if not site.source.is_in_f_string(literal) else None
    if opening is None:
        site.request_review(
            f"this names a CUDA device and cannot be edited safely: write {device} instead of cuda",
            zh=f"此处指定了 CUDA 设备但无法安全改写:请将 cuda 手工改为 {device}",
            node=literal,
        )
        return False
    start = site.source.span(literal)[0] + opening.end()
    if mark_once(site, "device", start):  # a literal may be reached from several handlers
        site.edit.replace(start, start + len("cuda"), device)
    return True


def string_branches(value: ast.expr | None) -> list[ast.Constant]:
    """Return the string literals that a value may be: "cuda" and "cpu" for `"cuda" if … else "cpu"`."""
    parts = branches(value) if value is not None else []
    return [part for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]


def is_membership_key(operator: ast.cmpop, left: ast.expr, side: ast.expr) -> bool:
    """Return True for the left side of `"cuda" in state` and `"cuda" not in state`."""
    return isinstance(operator, ast.In | ast.NotIn) and side is left
