"""Close a session that the script leaves open.

     import tensorflow as tf
     def train(steps):
         sess = tf.Session()
         for _ in range(steps):
             sess.run(step)
    -    return sess.run(loss)
    +    result = sess.run(loss)
    +    sess.close()
    +    return result

Closing the session releases the device's graph. A session opened by `with` closes itself; any other is closed at the
end of its block and before each return and exit in it, or in a `finally` if there is one. `atexit` closes a session at
module level if functions use it or no code does, other files import the module, or the end of the module is not reached
(`tf.app.run` and `tf.test.main` leave by sys.exit). A session that is returned, kept on an object or given to Keras
needs manual review. A session that only reads or writes files is left alone.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import called_name, mark_once, plain_name, sole_target
from viaduct.migration.names import Bindings, Function
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _exits
from viaduct.migration.rules.tf1._communication import starts_communication
from viaduct.migration.rules.tf1._session_uses import find_keeper, only_handles_files, reads_within
from viaduct.migration.rules.tf1._tensorflow_names import import_module
from viaduct.migration.sessions import CLOSABLE_SESSIONS

rule = Rule(__name__, target_needs="closing", spec_rows=("S9", "S10"), after=("device_block",))

CLOSING_FUNCTIONS = {"closing", "enter_context", "push", "callback", "register"}  # functions of contextlib and atexit
CLOSE_METHODS = ("close", "__exit__")
SESSION_KINDS = {"session", "monitored_session"}  # results of site.values.kind


@rule.call(*CLOSABLE_SESSIONS)
def close_session(site: Site) -> None:
    """Close a session in a variable; report one that is kept in anything else."""
    parent = site.source.parents[site.node]
    if isinstance(parent, ast.withitem) or called_name(parent) in CLOSING_FUNCTIONS or only_handles_files(site):
        return
    target = sole_target(parent)
    if isinstance(target, ast.Name):
        close_variable(site, target.id, parent)  # type: ignore[arg-type]
    elif isinstance(target, ast.Attribute):
        check_attribute(site, target)
    elif isinstance(parent, ast.Return) and (function := site.source.function_around(site.node)) is not None:
        report_keeper(site, f"by the caller of {function.name}", f"{function.name} 的调用者")
    else:
        report_keeper(site, "in no variable", "匿名表达式")


def close_variable(site: Site, name: str, statement: ast.stmt) -> None:
    """Close the session in a variable after its last use, unless it is closed already or kept by something else."""
    names, function = site.file.names, site.source.function_around(site.node)
    bindings = names.lookup(name, names.scope_of(site.node)) or []
    reads = reads_within(site, (function or site.source.tree).body, name)
    reads = [read for read in reads if bindings is names.lookup(name, names.scope_of(read))]
    # The caller closes the session that `init_npu` returns (_communication.py).
    is_closed_by_caller = function is not None and starts_communication(site, function)
    if is_closed_by_caller or any(is_closed(site, read) for read in reads):
        return
    if isinstance(names.scope_of(statement).node, ast.ClassDef):
        report_keeper(site, "by a class", "类")
        return
    keeper = next((keeper for read in reads if (keeper := find_keeper(site, read))), None)
    if function is not None and name in names.scopes[function].global_or_nonlocal:
        keeper = "as a global", "全局变量"
    if keeper is not None:
        report_keeper(site, *keeper)
    elif function is None and outlives_module(site, reads):
        register_close(site, name, statement)
    else:
        opened = [binding for binding in bindings if not reads_name(binding, name)]
        close_block(site, name, statement, reads, opened)


def reads_name(value: str | ast.expr | None, name: str) -> bool:
    """Return True for a value that wraps the variable's former value: `sess = DebugWrapper(sess)`."""
    return isinstance(value, ast.expr) and any(plain_name(node) == name for node in ast.walk(value))


def is_closed(site: Site, use: ast.Name) -> bool:
    """Return True if the session is closed at this use: by its method, a `with` or an exit stack."""
    parent = site.source.parents[use]
    if isinstance(parent, ast.Attribute):
        return parent.attr in CLOSE_METHODS
    return isinstance(parent, ast.withitem) or called_name(parent) in CLOSING_FUNCTIONS


def report_keeper(site: Site, keeper: str, zh: str) -> None:
    site.request_review(
        f"this session is kept {keeper}: call its close() after the last use, which releases the device's graph",
        zh=f"该会话由 {zh} 持有:不再使用时请显式调用 close(),以释放设备上的图",
    )


def check_attribute(site: Site, target: ast.Attribute) -> None:
    """Report `self.sess`, unless its class, or for an attribute outside classes the file, closes one of that name."""
    owner, text = site.source.class_around(site.node), site.text_of(target)
    for node in ast.walk(owner or site.source.tree):
        closed = node.value if isinstance(node, ast.Attribute) and node.attr in CLOSE_METHODS else None
        if isinstance(closed, ast.Attribute) and closed.attr == target.attr:
            return
    if owner is not None:
        report_keeper(site, f"by class {owner.name} as {text}", f"{owner.name} 的 {text}")
    else:
        report_keeper(site, f"as {text}", text)


def outlives_module(site: Site, reads: list[ast.Name]) -> bool:
    """Return True for a session at module level that cannot be closed at the module's end.

    Functions use it, nothing reads it, another file imports the module, or the end is not reached.
    """
    parents = (parent for read in reads for parent in site.source.ancestors(read))
    in_functions = any(isinstance(parent, Function | ast.ClassDef) for parent in parents)
    is_imported = any(site.file.path in files for files in site.file.project.imports.values())
    return in_functions or not reads or is_imported or _exits.ends_program(site, site.source.tree.body)


def register_close(site: Site, name: str, statement: ast.stmt) -> None:
    site.edit.insert_after(statement, [f"{import_module(site, 'atexit')}.register({name}.close)"])
    report_closed(site)


def close_block(site: Site, name: str, statement: ast.stmt, reads: list[ast.Name], bindings: Bindings) -> None:
    """Close the session at the exits and the end of the block that holds all its uses; report it without such a block.

    This is the block of the assignment or, if the session is also used after a `with` around it, the block of that
    `with`. `bindings` holds the values of the variable.
    """
    statements: list[ast.stmt] = []
    start = find_common_start(site, statement, bindings)
    while start is not None:
        statements += get_statements_after(site, start)
        if not is_used_outside(site, start, reads):
            break
        parent = site.source.parents[start]
        start = parent if isinstance(parent, ast.With | ast.AsyncWith) else None
    if (
        start is None
        or (statements and _exits.is_endless(statements[-1]))
        or is_used_in_finally(site, statements, reads)
    ):
        site.request_review(
            f"it is not clear where `{name}` is used for the last time (opened more than once or in a branch, used in "
            "a finally, or in a loop that never ends): close it there",
            zh=f"`{name}` 的使用终点不明确(多次打开、分支中打开、finally 中使用或循环不结束):请在用完处调用 close()",
        )
        return
    if not mark_once(site, "closed", start, name):
        return
    if _exits.runs_main_and_exits(site, statements):
        register_close(site, name, start)
        return
    last_try = find_final_try(site, statements, reads)
    if last_try is not None:
        site.edit.insert_after(last_try.finalbody[-1], [f"{name}.close()"])
        statements = [*statements[: statements.index(last_try)], last_try]
    _exits.insert_at_exits(site, statements or [start], [f"{name}.close()"], skip=last_try)
    report_closed(site)


def find_common_start(site: Site, statement: ast.stmt, bindings: Bindings) -> ast.stmt | None:
    """Return the session's only assignment, or the `if` with one assignment in each branch; None in any other case."""
    if len(bindings) == 1:
        return statement
    values = [binding for binding in bindings if isinstance(binding, ast.expr)]
    assignments = [site.source.statement_around(value) for value in values]
    parents = {site.source.parents[assignment] for assignment in assignments}
    parent = parents.pop() if len(parents) == 1 else None
    are_sessions = {site.values.kind(value) for value in values} <= SESSION_KINDS
    if len(values) != len(bindings) or len(bindings) != 2 or not isinstance(parent, ast.If) or not are_sessions:
        return None
    in_else = {assignment in parent.orelse for assignment in assignments}
    return parent if in_else == {True, False} else None


def get_statements_after(site: Site, start: ast.stmt) -> list[ast.stmt]:
    block = site.source.block_around(start)
    return block[block.index(start) + 1 :]


def is_used_outside(site: Site, start: ast.stmt, reads: list[ast.Name]) -> bool:
    """Return True if the session is used before a statement or after its block."""
    begin, end = site.source.span(start)[0], site.source.span(site.source.block_around(start)[-1])[1]
    return any(not begin <= site.source.span(read)[0] < end for read in reads)


def is_used_in_finally(site: Site, statements: list[ast.stmt], reads: list[ast.Name]) -> bool:
    """Return True if an exit passes through a `finally` that uses the session, except the one of `find_final_try`."""
    for statement in _exits.find_exits(site, statements, skip=find_final_try(site, statements, reads)):
        for parent in site.source.ancestors(statement):
            if isinstance(parent, ast.Try) and any(site.source.is_within(read, parent.finalbody) for read in reads):
                return True
    return False


def find_final_try(site: Site, statements: list[ast.stmt], reads: list[ast.Name]) -> ast.Try | None:
    """Return the last statement, apart from returns without the session, if it is a `try` with a `finally`."""
    while statements and isinstance(statements[-1], ast.Return):
        if any(site.source.is_within(read, statements[-1:]) for read in reads):
            break
        statements = statements[:-1]
    last = statements[-1] if statements else None
    return last if isinstance(last, ast.Try) and last.finalbody else None


def report_closed(site: Site) -> None:
    site.report_change("the session is closed: that releases the device's graph", zh="显式关闭会话,以释放设备上的图")
