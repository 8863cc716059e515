"""Uses of a session that a script opened. Not a rule: the session rules share it."""

from __future__ import annotations

import ast

from viaduct.migration.rule import Site

# Calls that take a session to read or write files, not to compute with the model.
FILES = {
    *("restore", "save", "export_meta_graph", "convert_variables_to_constants", "write_graph", "simple_save"),
    *("add_meta_graph_and_variables", "add_meta_graph", "freeze_graph_with_def_protos", "assign_from_checkpoint"),
}
INITIALIZERS = {
    f"tensorflow.{name}"
    for name in (
        *("global_variables_initializer", "local_variables_initializer", "tables_initializer"),
        *("initialize_all_variables", "initializers.global_variables", "initializers.local_variables"),
    )
}
HARMLESS = {"graph", "graph_def", "close", "as_default", "sess_str"}


def stays_on_host(site: Site) -> bool:
    """Return True, and report it as advice, if the session only restores, freezes or saves."""
    if not only_files(site):
        return False
    site.advice(
        "this session only reads or writes checkpoints or graphs: it is left on the host",
        zh="该会话仅读写检查点或图文件:保留在主机侧",
    )
    return True


def only_files(site: Site) -> bool:
    """Return True if the session does nothing but read or write checkpoints and graphs."""
    name, region = opened_as(site)
    if not name:
        return False
    evaluated = site.source.only_within(site.source.attributes.get("eval", []), region)
    if any(is_called(site, node) for node in evaluated):
        return False
    purposes = [purpose(site, use) for use in uses(site, region, name)]
    return "files" in purposes and "other" not in purposes


def opened_as(site: Site) -> tuple[str, list[ast.stmt]]:
    """Return the variable that gets the session and the statements that may use it; "" if it gets no variable."""
    parent = site.source.parents[site.node]
    if isinstance(parent, ast.withitem) and isinstance(parent.optional_vars, ast.Name):
        block = site.source.parents[parent]
        return parent.optional_vars.id, block.body if isinstance(block, ast.With | ast.AsyncWith) else []
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name):
        scope = site.source.function(site.node) or site.source.tree
        return parent.targets[0].id, scope.body
    return "", []


def uses(site: Site, region: list[ast.stmt], name: str) -> list[ast.Name]:
    return site.source.only_within(site.source.reads.get(name, []), region)


def purpose(site: Site, use: ast.Name) -> str:
    """Return what a session is used for: "files", "nothing" (closing, initialising) or "other"."""
    parent = site.source.parents[use]
    if isinstance(parent, ast.Attribute):
        call = site.source.parents[parent]
        runs = isinstance(call, ast.Call) and parent.attr == "run"
        if runs and len(call.args) == 1 and initialises(site, call.args[0]):  # type: ignore[attr-defined]
            return "nothing"
        return "nothing" if parent.attr in HARMLESS else "other"
    call = site.source.parents[parent] if isinstance(parent, ast.keyword) else parent
    if isinstance(call, ast.Call) and use is not call.func:
        called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        return "files" if called in FILES else "other"
    return "other"


def initialises(site: Site, value: ast.expr) -> bool:
    if isinstance(value, ast.List | ast.Tuple):
        return all(initialises(site, element) for element in value.elts)
    origin = site.values.origin(value)
    if isinstance(origin, ast.Call) and site.qualified(origin.func) == "tensorflow.group":
        return all(initialises(site, argument) for argument in origin.args)
    return isinstance(origin, ast.Call) and site.qualified(origin.func) in INITIALIZERS


def is_called(site: Site, node: ast.Attribute) -> bool:
    parent = site.source.parents[node]
    return isinstance(parent, ast.Call) and parent.func is node
