"""Uses of a session that a script opens; `site` is the call `tf.Session(…)`.

A keeper of a session is a caller, an object, Keras or a closure that may use it after the block that opened it.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import assigned_name, call_with_argument, called_name, last_name, sole_target
from viaduct.migration.names import Function
from viaduct.migration.rule import Site

# Calls that use a session only to read or write files.
FILE_FUNCTIONS = {
    "restore", "save", "simple_save", "write_graph", "export_meta_graph", "add_meta_graph",
    "add_meta_graph_and_variables", "convert_variables_to_constants", "freeze_graph_with_def_protos",
    "assign_from_checkpoint",
}  # fmt: skip
INITIALIZING_FUNCTIONS = {
    "tensorflow.global_variables_initializer", "tensorflow.local_variables_initializer",
    "tensorflow.tables_initializer", "tensorflow.initialize_all_variables",
    "tensorflow.initializers.global_variables", "tensorflow.initializers.local_variables",
}  # fmt: skip
IDLE_ATTRIBUTES = {"graph", "graph_def", "close", "as_default", "sess_str"}  # attributes of a session: compute nothing
Keeper = tuple[str, str]
"""Texts for a message: in English ("by Keras"), in Chinese ("Keras")."""
MAX_DEPTH = 3
"""Number of objects such as `Trainer(Model(sess))` through which the keeper is searched."""


def advise_if_only_for_files(site: Site) -> bool:
    """Return True, after advice, if the session only reads or writes checkpoints and graphs."""
    if not only_handles_files(site):
        return False
    site.advise(
        "this session only reads or writes checkpoints or graphs: it stays on the host",
        zh="该会话仅读写检查点或图文件:保留在主机侧",
    )
    return True


def only_handles_files(site: Site) -> bool:
    """Return True if the session only reads or writes checkpoints and graphs."""
    name, statements = find_session_variable(site)
    if not name:
        return False
    eval_nodes = site.source.select_within(site.source.attributes.get("eval", []), statements)
    if any(getattr(site.source.parents[node], "func", None) is node for node in eval_nodes):
        return False  # `tensor.eval()` computes in the session
    purposes = [classify_purpose(site, use) for use in reads_within(site, statements, name)]
    return "files" in purposes and "other" not in purposes


def find_session_variable(site: Site) -> tuple[str, list[ast.stmt]]:
    """Return the variable that holds the session and the statements that may use it; "" if no variable does."""
    parent = site.source.parents[site.node]
    if isinstance(parent, ast.withitem) and isinstance(parent.optional_vars, ast.Name):
        block = site.source.parents[parent]
        return parent.optional_vars.id, block.body if isinstance(block, ast.With | ast.AsyncWith) else []
    variable = assigned_name(site, site.node)
    if variable is None:
        return "", []
    return variable.id, (site.source.function_around(site.node) or site.source.tree).body


def reads_within(site: Site, statements: list[ast.stmt], name: str) -> list[ast.Name]:
    """Return the reads of a name in the consecutive statements of a block."""
    return site.source.select_within(site.source.reads.get(name, []), statements)


def classify_purpose(site: Site, use: ast.Name) -> str:
    """Return the purpose of a use of a session: "files", "nothing" (closing, initialising) or "other"."""
    parent = site.source.parents[use]
    if isinstance(parent, ast.Attribute):
        run = site.source.parents[parent] if parent.attr == "run" else None
        if isinstance(run, ast.Call) and len(run.args) == 1 and is_initialising(site, run.args[0]):
            return "nothing"
        return "nothing" if parent.attr in IDLE_ATTRIBUTES else "other"
    call = call_with_argument(site, use)
    return "files" if call is not None and last_name(call.func) in FILE_FUNCTIONS else "other"


def is_initialising(site: Site, value: ast.expr) -> bool:
    """Return True for an operation that only initialises variables or tables, and for several such operations."""
    if isinstance(value, ast.List | ast.Tuple):
        return all(is_initialising(site, element) for element in value.elts)
    origin = site.values.assigned_value(value)
    if isinstance(origin, ast.Call) and site.qualified_name(origin.func) == "tensorflow.group":
        return all(is_initialising(site, argument) for argument in origin.args)
    return isinstance(origin, ast.Call) and site.qualified_name(origin.func) in INITIALIZING_FUNCTIONS


# ---- keepers


def find_keeper(site: Site, use: ast.Name, depth: int = 0) -> Keeper | None:
    """Return the keeper that gets the session by this use of its variable, or None.

    `depth`: the number of objects that hold the session on the way to this use.
    """
    if inner := find_inner_function(site, use):
        return find_keeper_of_function(site, inner)
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
            return find_keeper_of_assignment(site, parent, use, child, depth)
        elif isinstance(parent, ast.stmt):
            return None
        child = parent
    return None


def find_inner_function(site: Site, use: ast.Name) -> Function | None:
    """Return the nested function that uses a variable of an outer function, if any."""
    scope = site.file.names.scope_of(use)
    while scope.outer is not None and use.id not in scope.bindings:
        if isinstance(scope.node, Function) and isinstance(scope.outer.node, Function):
            return scope.node
        scope = scope.outer
    return None


def find_keeper_of_function(site: Site, inner: Function) -> Keeper | None:
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


def find_keeper_of_assignment(
    site: Site, statement: ast.stmt, use: ast.Name, value: ast.AST, depth: int
) -> Keeper | None:
    """Return the keeper in `target = value`: the target, or the keeper of an object such as `Model(sess)`."""
    target = sole_target(statement)
    if isinstance(target, ast.Attribute | ast.Subscript):
        return f"as {site.text_of(target)}", site.text_of(target)
    if isinstance(target, ast.Name) and isinstance(value, ast.Name):
        return f"as {target.id}", target.id
    function = site.source.function_around(statement)
    if not isinstance(target, ast.Name) or target.id == use.id or function is None or depth == MAX_DEPTH:
        return None
    keepers = (find_keeper(site, read, depth + 1) for read in reads_within(site, function.body, target.id))
    return next((keeper for keeper in keepers if keeper), None)
