"""Keepers of a session beyond the block that opened it: a caller, an object, Keras, a function called later.

Not a rule: session_close uses it. A keeper is a phrase for the message, in English and in Chinese.
"""

from __future__ import annotations

import ast

from viaduct.migration.names import Function
from viaduct.migration.rule import Site
from viaduct.migration.rules.tf1._session_uses import uses

Keeper = tuple[str, str]
TARGET = ast.Assign | ast.AnnAssign


def assigned_to(parent: ast.AST) -> ast.expr | None:
    if isinstance(parent, ast.Assign):
        return parent.targets[0] if len(parent.targets) == 1 else None
    return parent.target if isinstance(parent, ast.AnnAssign) else None


def called_by(site: Site, parent: ast.AST) -> str:
    """Return the last name of the called function; "" if the parent is no call."""
    if not isinstance(parent, ast.Call):
        return ""
    return parent.func.attr if isinstance(parent.func, ast.Attribute) else getattr(parent.func, "id", "")


def find_keeper(site: Site, use: ast.Name, depth: int = 0) -> Keeper | None:
    """Return the phrases for what keeps the session beyond its block; None if nothing does."""
    if inner := inner_function(site, use):
        return kept_by_function(site, inner)
    child: ast.AST = use
    for parent in site.source.ancestors(use):
        if isinstance(parent, ast.Attribute):
            return None  # sess.run(…): its result, not the session
        if isinstance(parent, ast.Call) and child is not parent.func:
            called = called_by(site, parent)
            if called == "set_session":
                return "by Keras", "Keras"
            if not called[:1].isupper():
                return None
        elif isinstance(parent, ast.Return | ast.Yield | ast.YieldFrom):
            owner = site.source.function(parent)
            return (f"by the caller of {owner.name}", f"{owner.name} 的调用者") if owner else None
        elif isinstance(parent, TARGET):
            return kept_by_target(site, parent, use, child, depth)
        elif isinstance(parent, ast.stmt):
            return None
        child = parent
    return None


def inner_function(site: Site, use: ast.Name) -> Function | None:
    """Return the nested function in which the name is used, if an outer function binds it: it may be called later."""
    scope = site.work.names.scope_of(use)
    while scope.outer is not None and use.id not in scope.bound:
        if isinstance(scope.node, Function) and isinstance(scope.outer.node, Function):
            return scope.node
        scope = scope.outer
    return None


def kept_by_function(site: Site, inner: Function) -> Keeper | None:
    """Return the keeper of an inner function or lambda; None for one that is only called where it was defined."""
    if isinstance(inner, ast.Lambda):
        parent = site.source.parents[inner]
        return None if isinstance(parent, ast.Call | ast.keyword) else ("by a lambda", "lambda")
    around = site.source.function(inner)
    mentioned = uses(site, around.body, inner.name) if around else iter(())
    called = all(isinstance(parent := site.source.parents[use], ast.Call) and parent.func is use for use in mentioned)
    return None if called and not inner.decorator_list else (f"by {inner.name}", inner.name)


def kept_by_target(site: Site, statement: TARGET, use: ast.Name, value: ast.AST, depth: int) -> Keeper | None:
    target = assigned_to(statement)
    if isinstance(target, ast.Attribute | ast.Subscript):
        return f"as {site.text(target)}", site.text(target)
    if isinstance(target, ast.Name) and isinstance(value, ast.Name):
        return f"as {target.id}", target.id
    around = site.source.function(statement)
    if not isinstance(target, ast.Name) or target.id == use.id or around is None or depth > 2:
        return None
    keepers = (find_keeper(site, node, depth + 1) for node in uses(site, around.body, target.id))  # model = Model(sess)
    return next((why for why in keepers if why), None)
