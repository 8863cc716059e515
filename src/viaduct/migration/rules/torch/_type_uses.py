"""Test whether a type of tensors is only compared: `isinstance(x, T)`, `kind is T`; also through a variable."""

from __future__ import annotations

import ast
import re

from viaduct.migration.rule import Site

NAME = re.compile(r"torch\.cuda((?:\.\w+)*)")


TAKER = "torch.set_default_tensor_type"


ASKS = ("isinstance", "issubclass")


def is_compared(site: Site, node: ast.AST) -> bool:
    """Return True for a type that stands in a comparison, or whose variable is used in comparisons alone."""
    top = outermost(site, node)
    return stands_compared(site, top) or only_compared_by_name(site, top)


def outermost(site: Site, node: ast.AST) -> ast.AST:
    """Return the outermost tuple, list, set or union around a node; the node itself if there is none."""
    parent = site.source.parents.get(node)
    while isinstance(parent, ast.Tuple | ast.List | ast.Set | ast.BinOp):
        node, parent = parent, site.source.parents.get(parent)
    return node


def stands_compared(site: Site, node: ast.AST) -> bool:
    """Return True for a type in isinstance, issubclass or a comparison."""
    parent = site.source.parents.get(node)
    if isinstance(parent, ast.Call):
        return isinstance(parent.func, ast.Name) and parent.func.id in ASKS and node in parent.args[1:]
    return isinstance(parent, ast.Compare)


def only_compared_by_name(site: Site, node: ast.AST) -> bool:
    """Return True for the value of a variable, such as a tuple of types, that is read in comparisons alone."""
    holder = site.source.parents.get(node)
    if not isinstance(holder, ast.Assign) or len(holder.targets) != 1 or not isinstance(holder.targets[0], ast.Name):
        return False
    name = holder.targets[0].id
    uses = [
        inner
        for inner in site.source.of_kind(ast.Name)
        if isinstance(inner, ast.Name) and inner.id == name and isinstance(inner.ctx, ast.Load)
    ]
    return bool(uses) and all(stands_compared(site, outermost(site, child)) for child in uses)


def is_default_type(site: Site, node: ast.AST) -> bool:
    """Return True for a type within set_default_tensor_type(…): other rules leave it as it is."""
    calls = (parent for parent in site.source.ancestors(node) if isinstance(parent, ast.Call))
    return any(site.qualified(call.func) == TAKER for call in calls)


def is_type_of(node: ast.expr) -> bool:
    """Return True for `x.type()`, which returns the name of a type."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "type"
