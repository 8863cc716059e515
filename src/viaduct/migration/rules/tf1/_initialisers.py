"""Initialisers of all variables: which expressions are one, and where an initialiser is run. Not a rule."""

from __future__ import annotations

import ast
import re

from viaduct.migration.project_usage import GROUPS, INITIALIZERS, makes_initialiser
from viaduct.migration.rule import Site
from viaduct.migration.rules.tf1 import _optimizers as optimizers
from viaduct.migration.rules.tf1._config_proto import attribute_assignments

LISTED_VARIABLES = (
    "tensorflow.variables_initializer",
    "tensorflow.initialize_variables",
    "tensorflow.initializers.variables",
)
ALL_VARIABLES = ("tensorflow.global_variables", "tensorflow.all_variables", "tensorflow.trainable_variables")
INITIALISER_NAME = re.compile(
    r"(?:^|_)init(?:s|_op|_ops|_all|_fn)?$|(?:^|_)initiali[sz](?:er|ers|e|ation|e_op|er_op)$|^init_"
)
OTHER_NAME = re.compile(r"iter|data|local|table|feed|hook|_ds|queue|infeed|npu|comm|system|hvd|saver|weight|config")
HANDLED_BY_OWNER = ("Scaffold", "Supervisor", "train")  # reported where they are made, or given the hook
Answer = bool | None
"""Answer to the question for an initialiser; None: it may be one by its name, and nothing shows whether it is."""


def is_initialiser(site: Site, node: ast.expr | None, depth: int = 0) -> Answer:
    """Return True for an initialiser of all variables, made in this file or another of the project.

    tf.variables_initializer of the trainable variables counts as well. None where only the name speaks for it.
    """
    if node is None or depth > 6:
        return False
    if makes_initialiser(site.values, node):
        return True
    made = site.values.origin(node)
    if isinstance(made, ast.Call):
        return is_initialising_call(site, made, depth)
    if isinstance(made, ast.List | ast.Tuple | ast.Dict):
        parts = made.values if isinstance(made, ast.Dict) else made.elts
        return any_of([is_initialiser(site, part, depth + 1) for part in parts])
    if isinstance(made, ast.IfExp):
        return any_of([is_initialiser(site, part, depth + 1) for part in (made.body, made.orelse)])
    if isinstance(made, ast.Subscript):
        key = made.slice
        return None if isinstance(key, ast.Constant) and has_initialiser_name(str(key.value)) else False
    if isinstance(made, ast.Name):
        return is_initialising_name(site, made, depth)
    return is_initialising_attribute(site, made) if isinstance(made, ast.Attribute) else False


def any_of(answers: list[Answer]) -> Answer:
    if any(answers):
        return True
    return None if None in answers else False


def has_initialiser_name(name: str) -> bool:
    return INITIALISER_NAME.search(name.lower()) is not None and OTHER_NAME.search(name.lower()) is None


def is_initialising_call(site: Site, call: ast.Call, depth: int) -> Answer:
    name = site.qualified(call.func)
    if name in GROUPS:
        return any_of([is_initialiser(site, argument, depth + 1) for argument in call.args])
    if name in LISTED_VARIABLES:
        given = call.args[0] if call.args else None
        return isinstance(given, ast.Call) and site.qualified(given.func) in ALL_VARIABLES
    if is_project_initialiser(site, name) or is_project_initialiser(site, method_name(site, call.func)):
        return True
    if isinstance(call.func, ast.Attribute) and name is None:
        return None if has_initialiser_name(call.func.attr) else False
    return False


def is_project_initialiser(site: Site, name: str | None) -> bool:
    """Return True for a name under which the project keeps an initialiser.

    Scripts import a file beside them by its bare name, so the end of a dotted name suffices.
    """
    names = site.work.project.initialisers
    return name is not None and (name in names or any(full.endswith(f".{name}") for full in names if "." in name))


def method_name(site: Site, function: ast.expr) -> str | None:
    """Return `module.Class.method` of `self.method`, or of a method of an object made in this scope or class."""
    if not isinstance(function, ast.Attribute):
        return None
    owner = site.values.origin(function.value)
    if isinstance(owner, ast.Attribute):
        made = [node.value for node in attribute_assignments(site, owner)]
        owner = made[0] if len(made) == 1 else owner
    if isinstance(owner, ast.Name) and owner.id == "self":
        around = next((parent for parent in site.source.ancestors(function) if isinstance(parent, ast.ClassDef)), None)
        return f"{site.work.names.own}.{around.name}.{function.attr}" if around else None
    name = site.qualified(owner.func) if isinstance(owner, ast.Call) else None
    return f"{name}.{function.attr}" if name else None


def is_initialising_name(site: Site, name: ast.Name, depth: int) -> Answer:
    if is_project_initialiser(site, site.qualified(name)):
        return True
    scope = site.work.names.scope_of(name)
    for value in site.work.names.lookup(name.id, scope) or []:
        if isinstance(value, ast.expr) and value is not name and is_initialiser(site, value, depth + 1):
            return True
    function = getattr(scope.node, "name", "")
    if f"{site.work.names.own}.{function}({name.id})" in site.work.project.initialisers:
        return True
    unpacked = unpacked_from(site, name)
    if unpacked is not None:
        called, location = unpacked
        if any(
            is_project_initialiser(site, f"{item}[{location}]")
            for item in (site.qualified(called), method_name(site, called))
            if item
        ):
            return True
    return None if has_initialiser_name(name.id) and not is_fully_bound(site, name) else False


def is_fully_bound(site: Site, name: ast.Name) -> bool:
    """Return True if only calls of known functions are bound to a name; the caller has seen that none initialises."""
    bound = site.work.names.lookup(name.id, site.work.names.scope_of(name)) or []
    return bool(bound) and all(isinstance(value, ast.Call) and site.qualified(value.func) for value in bound)


def unpacked_from(site: Site, name: ast.Name) -> tuple[ast.expr, int] | None:
    """Return the function whose result `op, name = function()` unpacks, and the index of the name in the result."""
    around = site.work.names.scope_of(name).node
    for node in site.source.of_kind(ast.Assign):
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if not isinstance(target, ast.Tuple | ast.List) or not isinstance(node.value, ast.Call):
            continue
        entries = [index for index, part in enumerate(target.elts) if getattr(part, "id", "") == name.id]
        if entries and site.work.names.scope_of(target.elts[entries[0]]).node is around:
            return node.value.func, entries[0]
    return None


def is_initialising_attribute(site: Site, node: ast.Attribute) -> Answer:
    project = site.work.project
    if is_project_initialiser(site, site.qualified(node)):
        return True
    if isinstance(node.value, ast.Name) and node.value.id == "self":
        assigned = [inner.value for inner in attribute_assignments(site, node)]
        if assigned:
            return any(makes_initialiser(site.values, value) or is_built_by_call(site, value) for value in assigned)
    if f".{node.attr}" in project.initialisers:
        return None if f".{node.attr}" in project.other_attributes else True
    return None if has_initialiser_name(node.attr) and not node.attr.startswith("initializer") else False


def is_built_by_call(site: Site, value: ast.expr) -> bool:
    """Return True for `build_init()` of `self.init = build_init()`, if the function returns an initialiser."""
    return isinstance(value, ast.Call) and is_initialising_call(site, value, 5) is True  # one level deeper at most


# ---- where an initialiser goes


def is_run_somewhere(site: Site, node: ast.expr, depth: int = 0) -> bool:
    """Return True if it is seen where an initialiser goes: to a run, an attribute, a caller, another file.

    Groups, collections and variables are followed. An initialiser that is made and thrown away goes nowhere: True.
    """
    parent = site.source.parents[node]
    keyword = parent if isinstance(parent, ast.keyword) else None
    parent = site.source.parents[parent] if keyword is not None else parent
    if depth > 6 or isinstance(parent, ast.Expr | ast.Return):
        return depth <= 6
    if isinstance(parent, ast.Attribute):
        return parent.attr == "run"
    if isinstance(parent, ast.Call):
        return is_run_by(site, parent, keyword, node, depth)
    if isinstance(parent, ast.List | ast.Tuple | ast.IfExp | ast.Dict):
        return is_run_somewhere(site, parent, depth + 1)
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
        target = parent.targets[0]
        if isinstance(target, ast.Name):
            uses = list(optimizers.loads(site, target))
            return any(is_run_somewhere(site, use, depth + 1) for use in uses) or is_taken_by_others(site, target)
        return isinstance(target, ast.Attribute)
    return False


def is_run_by(site: Site, call: ast.Call, keyword: ast.keyword | None, node: ast.expr, depth: int) -> bool:
    """Return True if a call that gets the initialiser runs it, or hands it to something that does."""
    name = site.qualified(call.func) or ""
    last = call.func.attr if isinstance(call.func, ast.Attribute) else name.rpartition(".")[2]
    if last == "run" or last in HANDLED_BY_OWNER:
        return True
    if name in GROUPS:
        return is_run_somewhere(site, call, depth + 1)
    defined = site.work.project.functions.get(name)
    if defined is None:
        return False
    parameters = [argument.arg for argument in defined[1].args.args]
    parameter = (
        keyword.arg
        if keyword is not None
        else parameters[call.args.index(node)]
        if node in call.args[: len(parameters)]
        else ""
    )
    return f"{name}({parameter})" in site.work.project.initialisers


def is_taken_by_others(site: Site, target: ast.Name) -> bool:
    """Return True for a variable of a module that other files import."""
    at_module = isinstance(site.work.names.scope_of(target).node, ast.Module)
    return at_module and bool(site.work.project.importers.get(site.work.path))


def initialises_some(site: Site, node: ast.expr) -> bool:
    """Return True for an initialiser of some variables only: `tf.variables_initializer(new_variables)`."""
    made = site.values.origin(node)
    return (
        isinstance(made, ast.Call)
        and site.qualified(made.func) in LISTED_VARIABLES
        and not is_initialising_call(site, made, 0)
    )


INITIALISER_NAMES = tuple(sorted(INITIALIZERS))
