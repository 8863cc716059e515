"""Close a session that the script does not close.

     import tensorflow as tf
     def train(steps):
         sess = tf.Session()
         for _ in range(steps):
             sess.run(step)
    -    return sess.run(loss)
    +    result = sess.run(loss)
    +    sess.close()
    +    return result

The device's graph is released when the session is closed. A session opened by `with` closes itself; any other is closed
where its block ends, before each return and exit, in a `finally` where there is one, and at the end of a module. Where
the end of a module is not reached (`tf.app.run` and `tf.test.main` leave by sys.exit), functions still use the session
or other files import the module, `atexit` closes it. A session that is returned, kept on an object or handed to Keras
needs manual review: its owner is named. A session that only reads or writes files is left alone.
"""

from __future__ import annotations

import ast

from viaduct.migration.names import Function
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _config_proto as proto
from viaduct.migration.rules.tf1 import _exits
from viaduct.migration.rules.tf1._communication import starts_communication
from viaduct.migration.rules.tf1._session_keepers import assigned_to, called_by, find_keeper
from viaduct.migration.rules.tf1._session_uses import only_files, uses
from viaduct.migration.sessions import CLOSABLE

rule = Rule(__name__, spec="S9 S10", kind="mandatory", after=("device_block",))

CLOSERS = {"closing", "enter_context", "push", "callback", "register"}
SESSIONS = {"session", "monitored_session"}


@rule.call(*CLOSABLE)
def close_session(site: Site) -> None:
    parent = site.source.parents[site.node]
    if isinstance(parent, ast.withitem) or called_by(site, parent) in CLOSERS or only_files(site):
        return
    target = assigned_to(parent)
    if isinstance(target, ast.Name):
        close_variable(site, target.id, parent)  # type: ignore[arg-type]
    elif isinstance(target, ast.Attribute):
        check_attribute(site, target)
    elif isinstance(parent, ast.Return):
        owner = site.source.function(site.node)
        report_keeper(
            site, f"by the caller of {owner.name}" if owner else "nowhere", f"{owner.name if owner else ''} 的调用者"
        )
    else:
        report_keeper(site, "in no variable", "匿名表达式")


# ---- a variable


def close_variable(site: Site, name: str, statement: ast.stmt) -> None:
    function = site.source.function(site.node)
    scope = function or site.source.tree
    bound = site.work.names.lookup(name, site.work.names.scope_of(site.node)) or []
    found = [
        use
        for use in uses(site, scope.body, name)
        if bound is site.work.names.lookup(name, site.work.names.scope_of(use))
    ]
    starter = function is not None and starts_communication(site, function)
    if starter or any(is_closed(site, use) for use in found):
        return  # the session that starts communication is closed by the caller of this function
    if isinstance(site.work.names.scope_of(statement).node, ast.ClassDef):
        report_keeper(site, "by a class", "类")
        return
    is_global = function is not None and name in site.work.names.scopes[function].elsewhere
    keeper = (
        ("as a global", "全局变量")
        if is_global
        else next((why for use in found if (why := find_keeper(site, use))), None)
    )
    if keeper is not None:
        report_keeper(site, *keeper)
    elif function is None and outlives_module(site, name, statement, found):
        register_close(site, name, statement)
    else:
        close_block(site, name, statement, found, [binding for binding in bound if not mentions(binding, name)])


def mentions(value: str | ast.expr | None, name: str) -> bool:
    """Return True for `DebugWrapper(sess)` of `sess = DebugWrapper(sess)`: it is still the same session."""
    return isinstance(value, ast.expr) and any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(value))


def is_closed(site: Site, use: ast.Name) -> bool:
    parent = site.source.parents[use]
    if isinstance(parent, ast.Attribute):
        return parent.attr in ("close", "__exit__")
    return isinstance(parent, ast.withitem) or called_by(site, parent) in CLOSERS


def report_keeper(site: Site, keeper: str, zh: str) -> None:
    site.manual(
        f"this session is kept {keeper}: call its close() after the last use, which releases the device's graph",
        zh=f"该会话由 {zh} 持有:不再使用时请显式调用 close(),以释放设备上的图",
    )


def check_attribute(site: Site, target: ast.Attribute) -> None:
    """Report `self.sess`, unless something in its class, or in the file outside classes, closes it."""
    owner = next((node for node in site.source.ancestors(site.node) if isinstance(node, ast.ClassDef)), None)
    around: ast.AST = owner or site.source.tree
    for node in ast.walk(around):
        closing = isinstance(node, ast.Attribute) and node.attr in ("close", "__exit__")
        if closing and isinstance(node.value, ast.Attribute) and node.value.attr == target.attr:  # type: ignore[attr-defined]
            return
    name = f"by class {owner.name} as {site.text(target)}" if owner else f"as {site.text(target)}"
    report_keeper(site, name, f"{owner.name} 的 {site.text(target)}" if owner else site.text(target))


# ---- the end of a module


def outlives_module(site: Site, name: str, statement: ast.stmt, found: list[ast.Name]) -> bool:
    """Return True for a session of a module that cannot be closed at the module's end.

    Functions use it, nothing at module level does, another file imports the module, or its end is not reached.
    """
    in_functions = [
        use for use in found if any(isinstance(p, Function | ast.ClassDef) for p in site.source.ancestors(use))
    ]
    imported = any(site.work.path in files for files in site.work.project.imports.values())
    return bool(in_functions) or not found or imported or _exits.leaves_early(site, site.source.tree.body)


def register_close(site: Site, name: str, statement: ast.stmt) -> None:
    site.edit.insert_after(statement, [f"{proto.module_name(site, 'atexit')}.register({name}.close)"])
    report_closed(site)


# ---- the end of a block


def close_block(
    site: Site, name: str, statement: ast.stmt, found: list[ast.Name], bound: list[str | ast.expr | None]
) -> None:
    start, remainder = common_start(site, statement, bound), list[ast.stmt]()
    while start is not None:
        remainder += following(site, start)
        if not used_outside(site, start, found):
            break
        parent = site.source.parents[start]
        start = parent if isinstance(parent, ast.With | ast.AsyncWith) else None
    if start is None or (remainder and _exits.is_endless(remainder[-1])) or used_in_finally(site, remainder, found):
        site.manual(
            f"it is not clear where `{name}` is used for the last time (opened more than once or in a branch, used in "
            "a finally, or in a loop that never ends): close it there",
            zh=f"`{name}` 的使用终点不明确(多次打开、分支中打开、finally 中使用或循环不结束):请在用完处调用 close()",
        )
        return
    if ("closed", start, name) in site.work.seen:
        return
    if _exits.runs_script(site, remainder):
        register_close(site, name, start)
        return
    site.work.seen[("closed", start, name)] = None
    last_try = final_try(site, remainder, found)
    if last_try is not None:
        site.edit.insert_after(last_try.finalbody[-1], [f"{name}.close()"])
        remainder = [*remainder[: remainder.index(last_try)], last_try]
    _exits.insert_at_exits(site, remainder or [start], [f"{name}.close()"], skip=last_try)
    report_closed(site)


def common_start(site: Site, statement: ast.stmt, bound: list[str | ast.expr | None]) -> ast.stmt | None:
    """Return the assignment, or the `if` whose two branches both assign; None if it is assigned in another way."""
    if len(bound) == 1:
        return statement
    entries = [site.source.statement(value) for value in bound if isinstance(value, ast.expr)]
    parents = {site.source.parents[entry] for entry in entries}
    parent = parents.pop() if len(parents) == 1 else None
    kinds = {site.values.kind(value) for value in bound if isinstance(value, ast.expr)}
    if len(entries) != len(bound) or len(bound) != 2 or not isinstance(parent, ast.If) or not kinds <= SESSIONS:
        return None
    return parent if {record in parent.orelse for record in entries} == {True, False} else None


def following(site: Site, start: ast.stmt) -> list[ast.stmt]:
    block = site.source.block(start)
    return block[block.index(start) + 1 :]


def used_outside(site: Site, start: ast.stmt, found: list[ast.Name]) -> bool:
    """Return True if the session is used before a statement or behind the block of that statement."""
    begin, end = site.source.span(start)[0], site.source.span(site.source.block(start)[-1])[1]
    return any(not begin <= site.source.span(use)[0] < end for use in found)


def used_in_finally(site: Site, statements: list[ast.stmt], found: list[ast.Name]) -> bool:
    """Return True if an exit passes through a `finally` that uses the session; not that of a last `try`."""
    last = final_try(site, statements, found)
    for statement in _exits.exits(site, statements, skip=last):
        for parent in site.source.ancestors(statement):
            if isinstance(parent, ast.Try) and any(use in ast.walk(line) for line in parent.finalbody for use in found):
                return True
    return False


def final_try(site: Site, statements: list[ast.stmt], found: list[ast.Name]) -> ast.Try | None:
    """Return the last statement, returns without the session aside, if it is a `try` with a `finally`."""
    while (
        statements
        and isinstance(statements[-1], ast.Return)
        and not any(use in ast.walk(statements[-1]) for use in found)
    ):
        statements = statements[:-1]
    last = statements[-1] if statements else None
    return last if isinstance(last, ast.Try) and last.finalbody else None


def report_closed(site: Site) -> None:
    site.changed("the session is closed: that releases the device's graph", zh="显式关闭会话,以释放设备上的图")
