"""Keepers of a session: a caller, an object, Keras or a closure that may use it after the block that opened it.

`site` is the call `tf.Session(…)`.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import called_name, sole_target
from viaduct.migration.names import Function
from viaduct.migration.rule import Site
from viaduct.migration.rules.tf1._session_uses import reads_within

Keeper = tuple[str, str]
"""Texts for a message: in English ("by Keras"), in Chinese ("Keras")."""
MAX_DEPTH = 3
"""Number of objects such as `Trainer(Model(sess))` through which the keeper is searched."""


def find_keeper(site: Site, use: ast.Name, depth: int = 0) -> Keeper | None:
    """Return the keeper that gets the session by this use of its variable, or None.

    `depth`: the number of objects that hold the session on the way to this use.
    """
    if inner := inner_function(site, use):
        return keeper_of_function(site, inner)
    child: ast.AST = use
    for parent in site.source.ancestors(use):
        if isinstance(parent, ast.Attribute):
            return None  # sess.run(…)
        if isinstance(parent, ast.Call) and child is not parent.func:
            name = called_name(parent)
            if name == "set_session":
                return "by Keras", "Keras"
            if not name[:1].isupper():
                return None  # a function; only classes keep their arguments
        elif isinstance(parent, ast.Return | ast.Yield | ast.YieldFrom):
            owner = site.source.function_around(parent)
            return (f"by the caller of {owner.name}", f"{owner.name} 的调用者") if owner else None
        elif isinstance(parent, ast.Assign | ast.AnnAssign):
            return keeper_of_assignment(site, parent, use, child, depth)
        elif isinstance(parent, ast.stmt):
            return None
        child = parent
    return None


def inner_function(site: Site, use: ast.Name) -> Function | None:
    """Return the nested function that uses a variable of an outer function, if any."""
    scope = site.file.names.scope_of(use)
    while scope.outer is not None and use.id not in scope.bound:
        if isinstance(scope.node, Function) and isinstance(scope.outer.node, Function):
            return scope.node
        scope = scope.outer
    return None


def keeper_of_function(site: Site, inner: Function) -> Keeper | None:
    """Return a nested function or lambda as the keeper; None if it is only called in the function that defines it."""
    if isinstance(inner, ast.Lambda):
        parent = site.source.parents[inner]
        return None if isinstance(parent, ast.Call | ast.keyword) else ("by a lambda", "lambda")
    outer = site.source.function_around(inner)
    reads = reads_within(site, outer.body, inner.name) if outer else []
    is_only_called = all(
        isinstance(parent := site.source.parents[use], ast.Call) and parent.func is use for use in reads
    )
    return None if is_only_called and not inner.decorator_list else (f"by {inner.name}", inner.name)


def keeper_of_assignment(site: Site, statement: ast.stmt, use: ast.Name, value: ast.AST, depth: int) -> Keeper | None:
    """Return the keeper in `target = value`: the target, or the keeper of an object such as `Model(sess)`."""
    target = sole_target(statement)
    if isinstance(target, ast.Attribute | ast.Subscript):
        return f"as {site.text(target)}", site.text(target)
    if isinstance(target, ast.Name) and isinstance(value, ast.Name):
        return f"as {target.id}", target.id
    function = site.source.function_around(statement)
    if not isinstance(target, ast.Name) or target.id == use.id or function is None or depth == MAX_DEPTH:
        return None
    keepers = (find_keeper(site, read, depth + 1) for read in reads_within(site, function.body, target.id))
    return next((keeper for keeper in keepers if keeper), None)
