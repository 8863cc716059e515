"""Expressions that are the number of a device, such as `local_rank` or `args.gpu`."""

from __future__ import annotations

import ast

from viaduct.cards import DEVICE_TYPES
from viaduct.migration.lookups import (
    bind_arguments,
    bindings_of,
    branches,
    calls_to,
    keyword_value,
    last_name,
    plain_name,
    positional_parameters,
)
from viaduct.migration.names import Function, all_parameters
from viaduct.migration.predicates import is_none
from viaduct.migration.rule import Site
from viaduct.migration.rules.torch._devices import OTHER_LIBRARIES, is_of_other_library
from viaduct.migration.rules.torch._options import get_option_names

# Libraries with classes of tensors and modules.
TORCH_LIBRARIES = {
    "torch", "torchvision", "torchaudio", "torchtext", "timm", "transformers", "diffusers", "monai", "lightning",
}  # fmt: skip
# Usual names of device numbers.
NUMBER_NAMES = (
    {"gpu", "gpu_id", "gpuid", "gpu_idx", "gpu_index", "gpu_num", "local_gpu"}
    | {"rank", "rank_id", "local_rank", "localrank"}
    | {"device_id", "device_idx", "device_index"}
)
NUMBER_LIST_NAMES = {"device_ids", "gpu_ids", "gpus", "gpuids"}
# Functions that return the number of a device, or a rank or count to compute it: `get_rank() % device_count()`.
NUMBER_FUNCTIONS = (
    {f"torch.distributed.{name}" for name in ("get_rank", "get_node_local_rank", "get_world_size")}
    | {f"torch.{card}.{name}" for card in DEVICE_TYPES for name in ("current_device", "device_count")}
    | {"torch.accelerator.current_device_index"}
)
SPAWN_FUNCTIONS = ("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes")
ARITHMETIC = ast.Add | ast.Sub | ast.Mult | ast.FloorDiv | ast.Mod
MAX_DEPTH = 6
"""Number of variables, attributes and parameters through which a value is followed."""


def is_device_number(site: Site, node: ast.AST | None, depth: int = 0) -> bool:
    """Return True for an expression that can be the number of a device, such as any integer."""
    if node is None or depth > MAX_DEPTH:
        return False
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ARITHMETIC) and is_device_number(site, node.left, depth + 1)
    if isinstance(node, ast.Call):
        is_get_device = isinstance(node.func, ast.Attribute) and node.func.attr == "get_device" and not node.args
        return plain_name(node.func) == "int" or is_get_device or site.qualified_name(node.func) in NUMBER_FUNCTIONS
    if isinstance(node, ast.Subscript):  # device_ids[0], args.gpus[0]
        has_index = isinstance(node.slice, ast.Constant) and type(node.slice.value) is int
        return has_index and last_name(node.value).lower() in NUMBER_LIST_NAMES
    if isinstance(node, ast.Attribute):
        return is_number_attribute(site, node, depth)
    return isinstance(node, ast.Name) and is_number_name(site, node, depth)


def is_number_attribute(site: Site, node: ast.Attribute, depth: int) -> bool:
    """Return True for an attribute that holds the number of a device.

    The type or default of a command line option of that name decides. Without an option, all values that the file
    assigns to the attribute must be numbers; a usual name, such as `args.gpu`, needs no assignment.
    """
    option = find_option(site, node.attr)
    if option is not None:
        type_argument, default = keyword_value(option, "type"), keyword_value(option, "default")
        if type_argument is not None:
            return plain_name(type_argument) == "int"
        return isinstance(default, ast.Constant) and type(default.value) is int
    values = find_assigned_values(site, node)
    if has_device_number_name(node):
        return not any(is_text_or_device(site, value) for value in values)
    return bool(values) and all(is_device_number(site, value, depth + 1) for value in values)


def find_assigned_values(site: Site, node: ast.Attribute) -> list[ast.expr]:
    """Return the values that the file assigns to `object.attribute` as it is written, except None."""
    text = ast.unparse(node)
    return [
        statement.value
        for statement in site.source.nodes_of_type(ast.Assign)
        if any(getattr(target, "attr", "") == node.attr and ast.unparse(target) == text for target in statement.targets)
        and not is_none(statement.value)
    ]


def is_text_or_device(site: Site, value: ast.expr) -> bool:
    """Return True for a string or a torch.device, in at least one branch."""
    return any(
        isinstance(part, ast.JoinedStr)
        or (isinstance(part, ast.Constant) and isinstance(part.value, str))
        or site.values.kind(part) == "torch_device"
        for part in branches(value)
    )


def is_number_name(site: Site, node: ast.Name, depth: int) -> bool:
    """Return True for a name whose values are all numbers.

    Without values, it is a number if it counts a loop or worker, has a usual name, or calls pass numbers for it.
    """
    if site.values.kind(node) is not None:
        return False
    bindings = bindings_of(site, node)
    values = [value for value in bindings if isinstance(value, ast.expr) and not is_none(value)]
    values += find_unpacked_values(site, node) if None in bindings else []
    if values:
        return all(is_device_number(site, value, depth + 1) for value in values)
    if any(isinstance(binding, str) for binding in bindings):
        return False  # an import, a function or a class
    if is_worker_index(site, node) or is_loop_counter(site, node) or is_number_by_name(site, node):
        return True
    return is_passed_number(site, node, depth)


def find_unpacked_values(site: Site, node: ast.Name) -> list[ast.expr]:
    """Return the values of a name in `first, second = rank * 2, rank * 2 + 1`, in the same function."""
    unpacked: list[ast.expr] = []
    for statement in site.source.nodes_of_type(ast.Assign):
        target = statement.targets[0]
        if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
            pairs = zip(target.elts, statement.value.elts, strict=False)
            values = [value for element, value in pairs if plain_name(element) == node.id]
            # function_around is slow, so it is called only if there are values
            if values and site.source.function_around(statement) is site.source.function_around(node):
                unpacked += values
    return unpacked


def is_number_by_name(site: Site, node: ast.Name) -> bool:
    """Return True for a parameter with the annotation int, and for one of NUMBER_NAMES without an annotation."""
    function = site.file.names.scope_of(node).node
    parameters = all_parameters(function.args) if isinstance(function, Function) else []
    annotation = next((parameter.annotation for parameter in parameters if parameter.arg == node.id), None)
    return plain_name(annotation) == "int" if annotation is not None else has_device_number_name(node)


def is_passed_number(site: Site, node: ast.Name, depth: int) -> bool:
    """Return True for a parameter for which every call in the file passes a number."""
    function = site.file.names.scope_of(node).node
    if not isinstance(function, ast.FunctionDef):
        return False
    owner = site.source.parents[function]
    is_constructor = function.name == "__init__" and isinstance(owner, ast.ClassDef)
    parameters = positional_parameters(function)[int(is_constructor) :]  # without self
    called = owner.name if is_constructor else function.name  # type: ignore[attr-defined]
    calls = site.file.index.calls.get(f"{site.file.names.module}.{called}", [])
    passed = [bind_arguments(call, parameters).get(node.id) for call in calls]
    return bool(passed) and all(is_device_number(site, value, depth + 1) for value in passed)


def is_worker_index(site: Site, node: ast.Name) -> bool:
    """Return True for the first parameter of a function that mp.spawn starts."""
    function = site.file.names.scope_of(node).node
    if not isinstance(function, ast.FunctionDef) or not function.args.args or function.args.args[0].arg != node.id:
        return False
    return any(plain_name(call.args[0]) == function.name for call in calls_to(site, SPAWN_FUNCTIONS) if call.args)


def is_loop_counter(site: Site, node: ast.Name) -> bool:
    """Return True for the variable of a loop over `range(…)`."""
    for parent in site.source.ancestors(node):
        if isinstance(parent, ast.For) and plain_name(parent.target) == node.id:
            return isinstance(parent.iter, ast.Call) and plain_name(parent.iter.func) == "range"
    return False


def is_sometimes_device_number(site: Site, node: ast.AST) -> bool:
    """Return True for a name with both numbers and other things as values."""
    values = bindings_of(site, node) if isinstance(node, ast.Name) else []
    are_numbers = [
        is_device_number(site, part) for value in values if isinstance(value, ast.expr) for part in branches(value)
    ]
    return any(are_numbers) and not all(are_numbers)


def find_option(site: Site, name: str) -> ast.Call | None:
    """Return the add_argument of this file that declares an option."""
    calls = site.file.index.methods.get("add_argument", [])
    return next((call for call in calls if name in get_option_names(site, call)), None)


def has_device_number_name(node: ast.AST) -> bool:
    """Return True for a name or attribute with a usual name for the number of a device."""
    return last_name(node).lower() in NUMBER_NAMES


def may_be_torch_object(site: Site, receiver: ast.expr) -> bool:
    """Return False for an object of another library, and for the result of calling a class that is not known."""
    origin = site.values.assigned_value(receiver)
    if isinstance(origin, ast.Call) and site.values.kind(origin) is None and isinstance(origin.func, ast.Name):
        name = site.qualified_name(origin.func) or origin.func.id
        return name.partition(".")[0] in TORCH_LIBRARIES or not origin.func.id[:1].isupper()
    return not is_of_other_library(site.qualified_name(receiver)) and plain_name(receiver) not in OTHER_LIBRARIES
