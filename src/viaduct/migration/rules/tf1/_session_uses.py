"""Uses of a session that a script opens; `site` is the call `tf.Session(…)`."""

from __future__ import annotations

import ast

from viaduct.migration.lookups import assigned_name, call_with_argument, last_name
from viaduct.migration.rule import Site

# Calls that use a session only to read or write files.
FILE_FUNCTIONS = {
    "restore",
    "save",
    "simple_save",
    "write_graph",
    "export_meta_graph",
    "add_meta_graph",
    "add_meta_graph_and_variables",
    "convert_variables_to_constants",
    "freeze_graph_with_def_protos",
    "assign_from_checkpoint",
}
INITIALIZING_FUNCTIONS = {
    "tensorflow.global_variables_initializer",
    "tensorflow.local_variables_initializer",
    "tensorflow.tables_initializer",
    "tensorflow.initialize_all_variables",
    "tensorflow.initializers.global_variables",
    "tensorflow.initializers.local_variables",
}
IDLE_ATTRIBUTES = {"graph", "graph_def", "close", "as_default", "sess_str"}  # of a session; they compute nothing


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
    name, statements = session_variable(site)
    if not name:
        return False
    eval_nodes = site.source.only_within(site.source.attributes.get("eval", []), statements)
    if any(getattr(site.source.parents[node], "func", None) is node for node in eval_nodes):
        return False  # `tensor.eval()` computes in the session
    purposes = [purpose_of(site, use) for use in reads_within(site, statements, name)]
    return "files" in purposes and "other" not in purposes


def session_variable(site: Site) -> tuple[str, list[ast.stmt]]:
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
    return site.source.only_within(site.source.reads.get(name, []), statements)


def purpose_of(site: Site, use: ast.Name) -> str:
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
    origin = site.values.origin(value)
    if isinstance(origin, ast.Call) and site.qualified_name(origin.func) == "tensorflow.group":
        return all(is_initialising(site, argument) for argument in origin.args)
    return isinstance(origin, ast.Call) and site.qualified_name(origin.func) in INITIALIZING_FUNCTIONS
