"""Whether a type of tensors is only compared: `isinstance(x, T)`, `kind is T`; also by way of a name."""

from __future__ import annotations

import ast

from viaduct.migration.rule import Site

ASKS = ("isinstance", "issubclass")


def is_compared(site: Site, node: ast.AST) -> bool:
    """Not where it also makes tensors."""
    top = outermost(site, node)
    return stands_compared(site, top) or only_compared_by_name(site, top)


def outermost(site: Site, node: ast.AST) -> ast.AST:
    """The tuple or the list in which it stands."""
    parent = site.source.parents.get(node)
    while isinstance(parent, ast.Tuple | ast.List | ast.Set | ast.BinOp):
        node, parent = parent, site.source.parents.get(parent)
    return node


def stands_compared(site: Site, node: ast.AST) -> bool:
    parent = site.source.parents.get(node)
    if isinstance(parent, ast.Call):
        return isinstance(parent.func, ast.Name) and parent.func.id in ASKS and node in parent.args[1:]
    return isinstance(parent, ast.Compare)


def only_compared_by_name(site: Site, node: ast.AST) -> bool:
    """`KINDS = (torch.cuda.FloatTensor, torch.cuda.HalfTensor)`."""
    holder = site.source.parents.get(node)
    if not isinstance(holder, ast.Assign) or len(holder.targets) != 1 or not isinstance(holder.targets[0], ast.Name):
        return False
    name = holder.targets[0].id
    uses = [
        one
        for one in site.source.of_kind(ast.Name)
        if isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Load)
    ]
    return bool(uses) and all(stands_compared(site, outermost(site, one)) for one in uses)
