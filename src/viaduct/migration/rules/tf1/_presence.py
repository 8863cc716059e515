"""Questions whether a module is there: `hvd is None`, `if not hvd`. Not a rule: the Horovod rules share it.

They want to know yes or no, and nothing of the module itself, so `True` can stand in its place.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import PurePosixPath

from viaduct.migration.rule import Site

SAME_OR_NOT = (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)
DECIDING = (ast.If, ast.IfExp, ast.While, ast.Assert)


def is_question(site: Site, name: ast.Name) -> bool:
    parent = site.source.parents[name]
    if isinstance(parent, ast.Compare):
        sides = [parent.left, *parent.comparators]
        other = next((side for side in sides if side is not name), None)
        return len(sides) == 2 and isinstance(parent.ops[0], SAME_OR_NOT) and is_none(other)
    return is_decided_by(site, name)


def is_none(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def is_decided_by(site: Site, node: ast.AST) -> bool:
    """Whether nobody gets to see more of it than its truth: `x = hvd or other` would hand it on."""
    parent = site.source.parents[node]
    if isinstance(parent, DECIDING):
        return parent.test is node
    if isinstance(parent, ast.UnaryOp):
        return isinstance(parent.op, ast.Not)
    if isinstance(parent, ast.Call):
        return parent.args == [node] and isinstance(parent.func, ast.Name) and parent.func.id == "bool"
    if isinstance(parent, ast.comprehension):
        return node in parent.ifs
    if not isinstance(parent, ast.BoolOp):
        return False
    hidden = isinstance(parent.op, ast.And) and parent.values[-1] is not node
    return hidden or is_decided_by(site, parent)


def borrowers(site: Site, name: str) -> Iterator[str]:
    """Other files of the project that take the name out of this one."""
    module = PurePosixPath(site.work.path).stem
    for path, names in site.work.project.parsed.items():
        if path != site.work.path and any(takes(node, module, name) for node in names.source.nodes):
            yield path


def takes(node: ast.AST, module: str, name: str) -> bool:
    """`from module import name`, or `module.name`."""
    if isinstance(node, ast.ImportFrom):
        named = any(alias.name == name for alias in node.names)
        return named and (node.module or "").rpartition(".")[2] == module
    of = node.value if isinstance(node, ast.Attribute) and node.attr == name else None
    return isinstance(of, ast.Name | ast.Attribute) and ast.unparse(of).rpartition(".")[2] == module
