"""Device strings as they are written: `"cuda"`, `"cuda:0"`, `f"cuda:{rank}"`, `"cuda:%d" % rank`, `"cuda:" + rank`."""

from __future__ import annotations

import ast
import re

from viaduct.migration.rule import Site

DEVICE = re.compile(r"cuda(?::(?:\d+|%[dis]|\{[^{}]*\})?)?")
EXACT = re.compile(r"cuda(?::\d+)?")
OPENING = re.compile(r"[rRbBfFuU]*(?:\"\"\"|'''|\"|')(?=cuda)")
WORDS = {"device", "devices", "dev"}
NAMES = {"map_location", "device_type", "pin_memory_device"}
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def device_like(name: str) -> bool:
    """`device`, `args.device`'s last part, `--train-device`, `DEVICE`, `deviceType`."""
    plain = CAMEL.sub("_", name).lower().strip("-_").replace("-", "_")
    return plain in NAMES or bool(WORDS & set(plain.split("_")))


def head(node: ast.AST | None) -> ast.expr | None:
    """Return the string literal with which the text of a CUDA device begins; None if the expression is no such text."""
    if isinstance(node, ast.Constant):
        return node if isinstance(node.value, str) and DEVICE.fullmatch(node.value) else None
    if isinstance(node, ast.JoinedStr):
        first = node.values[0] if node.values else None
        if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
            return None
        complete = len(node.values) == 1 and EXACT.fullmatch(first.value) is not None  # f"cuda", with nothing put in
        return node if complete or first.value.startswith("cuda:") else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
        return head(node.left)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        return head(node.func.value)
    return None


def is_exact(node: ast.AST | None) -> bool:
    """Return True for a literal that is a whole CUDA device: `"cuda"`, `"cuda:0"`."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and EXACT.fullmatch(node.value) is not None


def rename(site: Site, literal: ast.expr, device: str) -> bool:
    """Replace `cuda` at the beginning of a literal; return False where it stays.

    A literal that cannot be edited is reported; one in a place that serves the card already is not.
    """
    if site.work.is_served(literal):
        return False
    start, _ = site.source.span(literal)
    opening = OPENING.match(site.text(literal)) if not site.source.in_f_string(literal) else None
    if opening is None:
        by_hand(site, literal, device)
        return False
    position = start + opening.end()
    if ("device", position) not in site.work.seen:
        site.work.seen[("device", position)] = None
        site.edit.replace(position, position + len("cuda"), device)
    return True


def by_hand(site: Site, literal: ast.expr, device: str) -> None:
    """Report a device that cannot be edited safely where it is written."""
    site.manual(
        f"this names a CUDA device and cannot be edited safely here: write {device} instead of cuda",
        zh=f"此处指定了 CUDA 设备但无法安全改写:请将 cuda 手工改为 {device}",
        node=literal,
    )


def strings(value: ast.expr | None) -> list[ast.Constant]:
    """Return the string literals of a value and of its branches: `"cuda" if … else "cpu"`."""
    if isinstance(value, ast.IfExp):
        return strings(value.body) + strings(value.orelse)
    return [value] if isinstance(value, ast.Constant) and isinstance(value.value, str) else []


def is_asked_for_key(operator: ast.cmpop, left: ast.expr, side: ast.expr) -> bool:
    """Return True for the text of `"cuda" in state`, which asks for an entry of something."""
    return isinstance(operator, ast.In | ast.NotIn) and side is left
