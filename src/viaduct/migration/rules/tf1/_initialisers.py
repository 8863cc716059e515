"""Expressions that are initialisers of all variables, such as `tf.global_variables_initializer()`, and their uses."""

from __future__ import annotations

import ast
import re

from viaduct.migration.lookups import (
    bind_arguments,
    bindings_of,
    call_with_argument,
    find_reads,
    plain_name,
    sole_target,
)
from viaduct.migration.predicates import is_self
from viaduct.migration.project_usage import GROUPING_CALLS, makes_initialiser
from viaduct.migration.rule import Site
from viaduct.migration.rules.tf1._config_proto import find_attribute_assignments

# Functions of TensorFlow that return the initialiser of a list of variables.
LIST_INITIALISERS = (
    "tensorflow.variables_initializer",
    "tensorflow.initialize_variables",
    "tensorflow.initializers.variables",
)
ALL_VARIABLES = ("tensorflow.global_variables", "tensorflow.all_variables", "tensorflow.trainable_variables")
# Names that suggest an initialiser of the model's variables, except those that EXCLUDED_NAME matches.
INITIALISER_NAME = re.compile(
    r"(?:^|_)init(?:s|_op|_ops|_all|_fn)?$|(?:^|_)initiali[sz](?:er|ers|e|ation|e_op|er_op)$|^init_"
)
EXCLUDED_NAME = re.compile(r"iter|data|local|table|feed|hook|_ds|queue|infeed|npu|comm|system|hvd|saver|weight|config")
# Functions and methods that run an initialiser among their arguments.
RUNNING_CALLS = ("Scaffold", "Supervisor", "train")
MAX_DEPTH = 6  # number of groups, collections and variables that are followed, one within the other
Verdict = bool | None
"""True for an initialiser; None for what may be one, for example by its name; False for anything else."""


def is_initialiser(site: Site, node: ast.expr | None, depth: int = 0) -> Verdict:
    """Return True for an initialiser of all variables, or of all trainable ones, from any file of the project."""
    if node is None or depth > MAX_DEPTH:
        return False
    if makes_initialiser(site.values, node):
        return True
    origin = site.values.assigned_value(node)
    if isinstance(origin, ast.Call):
        return is_initialising_call(site, origin, depth)
    if isinstance(origin, ast.List | ast.Tuple | ast.Dict):
        entries = origin.values if isinstance(origin, ast.Dict) else origin.elts
        return combine_verdicts([is_initialiser(site, entry, depth + 1) for entry in entries])
    if isinstance(origin, ast.IfExp):
        return combine_verdicts([is_initialiser(site, branch, depth + 1) for branch in (origin.body, origin.orelse)])
    if isinstance(origin, ast.Subscript):
        key = origin.slice
        return None if isinstance(key, ast.Constant) and has_initialiser_name(str(key.value)) else False
    if isinstance(origin, ast.Name):
        return is_initialising_name(site, origin, depth)
    return is_initialising_attribute(site, origin) if isinstance(origin, ast.Attribute) else False


def combine_verdicts(verdicts: list[Verdict]) -> Verdict:
    """Return True if one verdict is True, else None if one is None, else False."""
    if any(verdicts):
        return True
    return None if None in verdicts else False


def has_initialiser_name(name: str) -> bool:
    return INITIALISER_NAME.search(name.lower()) is not None and EXCLUDED_NAME.search(name.lower()) is None


def is_initialising_call(site: Site, call: ast.Call, depth: int) -> Verdict:
    """Return True for a call that creates an initialiser or a group of them, directly or in a function."""
    name = site.qualified_name(call.func)
    if name in GROUPING_CALLS:
        return combine_verdicts([is_initialiser(site, argument, depth + 1) for argument in call.args])
    if name in LIST_INITIALISERS:
        variables = call.args[0] if call.args else None
        return isinstance(variables, ast.Call) and site.qualified_name(variables.func) in ALL_VARIABLES
    if is_project_initialiser(site, name) or is_project_initialiser(site, qualify_method(site, call.func)):
        return True
    if isinstance(call.func, ast.Attribute) and name is None:
        return None if has_initialiser_name(call.func.attr) else False
    return False


def is_project_initialiser(site: Site, name: str | None) -> bool:
    """Return True if the project assigns or returns an initialiser under this qualified name.

    The project's keys are `module.name`, `.attribute`, `module.function(parameter)`, and for results `module.function`
    and `module.Class.method`, with `[index]` for an element of a returned tuple. Scripts import a file of their folder
    by its bare name, so the name may lack the beginning of the key.
    """
    keys = site.file.project.initialisers
    return name is not None and (name in keys or any(key.endswith(f".{name}") for key in keys if "." in name))


def qualify_method(site: Site, function: ast.expr) -> str | None:
    """Return `module.Class.method` for `self.method`, and for a method of an object whose constructor call is known."""
    if not isinstance(function, ast.Attribute):
        return None
    owner = site.values.assigned_value(function.value)
    if isinstance(owner, ast.Attribute):
        values = [assignment.value for assignment in find_attribute_assignments(site, owner)]
        owner = values[0] if len(values) == 1 else owner
    if is_self(owner):
        own_class = site.source.class_around(function)
        return f"{site.file.names.module}.{own_class.name}.{function.attr}" if own_class else None
    name = site.qualified_name(owner.func) if isinstance(owner, ast.Call) else None
    return f"{name}.{function.attr}" if name else None


def is_initialising_name(site: Site, name: ast.Name, depth: int) -> Verdict:
    """Return True for a variable or parameter that may hold an initialiser; None if only its name suggests one."""
    if is_project_initialiser(site, site.qualified_name(name)):
        return True
    bindings = bindings_of(site, name)
    for value in bindings:
        if isinstance(value, ast.expr) and value is not name and is_initialiser(site, value, depth + 1):
            return True
    function = getattr(site.file.names.scope_of(name).node, "name", "")
    if f"{site.file.names.module}.{function}({name.id})" in site.file.project.initialisers:
        return True
    unpacking = find_unpacking(site, name)
    if unpacking is not None:
        called, index = unpacking
        functions = (site.qualified_name(called), qualify_method(site, called))
        if any(is_project_initialiser(site, f"{qualified}[{index}]") for qualified in functions if qualified):
            return True
    # a variable that holds results of known functions is no initialiser, whatever its name
    is_refuted = bindings and all(isinstance(value, ast.Call) and site.qualified_name(value.func) for value in bindings)
    return None if has_initialiser_name(name.id) and not is_refuted else False


def find_unpacking(site: Site, name: ast.Name) -> tuple[ast.expr, int] | None:
    """Return the function in `op, name = function()`, in the scope of the name, and the name's index in the result."""
    scope = site.file.names.scope_of(name).node
    for node in site.source.nodes_of_type(ast.Assign):
        target = node.targets[0]
        if not isinstance(target, ast.Tuple | ast.List) or not isinstance(node.value, ast.Call):
            continue
        index = next((index for index, part in enumerate(target.elts) if plain_name(part) == name.id), None)
        if index is not None and site.file.names.scope_of(target.elts[index]).node is scope:
            return node.value.func, index
    return None


def is_initialising_attribute(site: Site, node: ast.Attribute) -> Verdict:
    """Return True for an attribute that the project sets to an initialiser.

    For `self.x` the assignments in its class decide, if there are any. For other attributes the verdict is None if
    attributes of this name also get other values, or if only the name suggests an initialiser.
    """
    project = site.file.project
    if is_project_initialiser(site, site.qualified_name(node)):
        return True
    values = [assignment.value for assignment in find_attribute_assignments(site, node)] if is_self(node.value) else []
    if values:
        return any(makes_initialiser(site.values, value) or is_built_by_call(site, value) for value in values)
    if f".{node.attr}" in project.initialisers:
        return None if f".{node.attr}" in project.attributes_with_other_values else True
    return None if has_initialiser_name(node.attr) and not node.attr.startswith("initializer") else False


def is_built_by_call(site: Site, value: ast.expr) -> bool:
    """Return True for a call that is known to return an initialiser; groups are followed one level deep."""
    return isinstance(value, ast.Call) and is_initialising_call(site, value, MAX_DEPTH - 1) is True


def is_run_somewhere(site: Site, node: ast.expr, depth: int = 0) -> bool:
    """Return True if an initialiser reaches a run, an attribute, a caller or another file, or is a statement itself.

    Groups, collections and variables are followed.
    """
    if depth > MAX_DEPTH:
        return False
    parent = site.source.parents[node]
    call = call_with_argument(site, node)
    if isinstance(parent, ast.Expr | ast.Return):
        return True
    if isinstance(parent, ast.Attribute):
        return parent.attr == "run"
    if call is not None:
        return is_run_by(site, call, node, depth)
    if isinstance(parent, ast.List | ast.Tuple | ast.IfExp | ast.Dict):
        return is_run_somewhere(site, parent, depth + 1)
    target = sole_target(parent) if isinstance(parent, ast.Assign) else None
    if isinstance(target, ast.Name):
        reads = list(find_reads(site, target))
        is_global = isinstance(site.file.names.scope_of(target).node, ast.Module)
        is_importable = is_global and bool(site.file.project.importers.get(site.file.path))
        return is_importable or any(is_run_somewhere(site, read, depth + 1) for read in reads)
    return isinstance(target, ast.Attribute)


def is_run_by(site: Site, call: ast.Call, argument: ast.expr, depth: int) -> bool:
    """Return True if a call runs its argument, an initialiser, or passes it to code that does so."""
    name = site.qualified_name(call.func) or ""
    function_name = call.func.attr if isinstance(call.func, ast.Attribute) else name.rpartition(".")[2]
    if function_name == "run" or function_name in RUNNING_CALLS:
        return True
    if name in GROUPING_CALLS:
        return is_run_somewhere(site, call, depth + 1)
    if name not in site.file.project.functions:
        return False
    _, function = site.file.project.functions[name]
    parameters = [parameter.arg for parameter in function.args.args]
    passed = [parameter for parameter, value in bind_arguments(call, parameters).items() if value is argument]
    return any(f"{name}({parameter})" in site.file.project.initialisers for parameter in passed)


def is_partial_initialiser(site: Site, node: ast.expr) -> bool:
    """Return True for an initialiser of a list that may lack variables: `tf.variables_initializer(new_variables)`."""
    origin = site.values.assigned_value(node)
    if not isinstance(origin, ast.Call) or site.qualified_name(origin.func) not in LIST_INITIALISERS:
        return False
    return not is_initialising_call(site, origin, 0)
