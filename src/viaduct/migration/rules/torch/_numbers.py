"""Test whether an expression is the number of a device: an int, not a text and not a torch.device."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.migration.names import Function, all_arguments
from viaduct.migration.predicates import is_none
from viaduct.migration.rule import Site
from viaduct.migration.rules.torch._devices import FOREIGN, is_foreign

FAMILY = ("torch", "torchvision", "torchaudio", "torchtext", "timm", "transformers", "diffusers", "monai", "lightning")


# Names that are usual for numbers of devices, and for nothing else.
HABIT = {
    *("gpu", "gpu_id", "gpuid", "gpu_idx", "gpu_index", "gpu_num", "rank", "local_rank", "device_id", "device_index"),
    *("device_idx", "rank_id", "local_gpu", "localrank"),
}
LISTS = {"device_ids", "gpu_ids", "gpus", "gpuids"}
COUNTED = {
    *("torch.distributed.get_rank", "torch.distributed.get_node_local_rank", "torch.distributed.get_world_size"),
    *(f"torch.{card}.{name}" for card in ("cuda", "npu", "mlu") for name in ("current_device", "device_count")),
    "torch.accelerator.current_device_index",
}
SPAWN = ("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes")
ARITHMETIC = ast.Add | ast.Sub | ast.Mult | ast.FloorDiv | ast.Mod


def is_number(site: Site, node: ast.AST | None, depth: int = 0) -> bool:
    """Return True for an expression that is the number of a device."""
    if node is None or depth > 6:
        return False
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ARITHMETIC) and is_number(site, node.left, depth + 1)
    if isinstance(node, ast.Call):
        builtin = isinstance(node.func, ast.Name) and node.func.id == "int"
        return builtin or asks_tensor(node) or site.qualified(node.func) in COUNTED
    if isinstance(node, ast.Subscript):
        return is_listed(node)
    if isinstance(node, ast.Attribute):
        return is_numbered_attribute(site, node, depth)
    return isinstance(node, ast.Name) and is_numbered_name(site, node, depth)


def asks_tensor(call: ast.Call) -> bool:
    """`x.get_device()`."""
    return isinstance(call.func, ast.Attribute) and call.func.attr == "get_device" and not call.args


def is_listed(node: ast.Subscript) -> bool:
    """`device_ids[0]`, `args.gpus[0]`."""
    base = node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", "")
    return base.lower() in LISTS and isinstance(node.slice, ast.Constant) and type(node.slice.value) is int


def is_numbered_attribute(site: Site, node: ast.Attribute, depth: int = 0) -> bool:
    """Return True for an attribute that holds the number of a device.

    An option of that name decides by its type or its default. Else all values that the file assigns to it must be
    numbers; for a usual name, such as `args.gpu`, it is enough that none is a text or a device.
    """
    declared = find_option(site, node.attr)
    if declared is not None:
        kind = keyword_value(declared, "type")
        if kind is not None:
            return isinstance(kind, ast.Name) and kind.id == "int"
        if isinstance(keyword_value(declared, "default"), ast.Constant):
            default = keyword_value(declared, "default")
            return isinstance(default, ast.Constant) and type(default.value) is int
        return False  # without a type the command line gives a text
    values = values_of_attribute(site, node)
    if node.attr.lower() in HABIT:
        return not any(is_text_or_device(site, value) for value in values)
    return bool(values) and all(is_number(site, value, depth + 1) for value in values)


def values_of_attribute(site: Site, node: ast.Attribute) -> list[ast.expr]:
    """Return the values that the file assigns to the attribute as it is written, None left out."""
    written = ast.unparse(node)
    assigns = [inner for inner in site.source.of_kind(ast.Assign) if isinstance(inner, ast.Assign)]
    same = [call for call in assigns if any(is_written(target, node.attr, written) for target in call.targets)]
    return [item.value for item in same if not is_none(item.value)]


def is_written(target: ast.expr, name: str, written: str) -> bool:
    """Return True for an attribute that is spelled in exactly this way."""
    return isinstance(target, ast.Attribute) and target.attr == name and ast.unparse(target) == written


def is_text_or_device(site: Site, value: ast.expr) -> bool:
    """Return True for a string or a torch.device, in at least one branch."""
    if isinstance(value, ast.IfExp):
        return is_text_or_device(site, value.body) or is_text_or_device(site, value.orelse)
    text = isinstance(value, ast.JoinedStr) or (isinstance(value, ast.Constant) and isinstance(value.value, str))
    return text or site.values.kind(value) == "torch_device"


def is_numbered_name(site: Site, node: ast.Name, depth: int) -> bool:
    """Return True for a name that is only ever bound to numbers, or for a parameter that is seen to be one."""
    if site.values.kind(node) is not None:
        return False
    bound = site.work.names.lookup(node.id, site.work.names.scope_of(node)) or []
    values = [what for what in bound if isinstance(what, ast.expr) and not is_none(what)]
    values += values_of_unpacking(site, node) if None in bound else []
    if values:
        return all(is_number(site, value, depth + 1) for value in values)
    if any(isinstance(what, str) for what in bound):
        return False  # imported, or a function
    if is_worker_number(site, node) or is_counter(site, node) or is_told_by_name(site, node):
        return True
    return is_passed_number(site, node, depth)


def values_of_unpacking(site: Site, node: ast.Name) -> list[ast.expr]:
    """`first, second = rank * 2, rank * 2 + 1`, in the same function."""
    found = []
    for inner in site.source.of_kind(ast.Assign):
        if (
            isinstance(inner, ast.Assign)
            and isinstance(inner.targets[0], ast.Tuple)
            and isinstance(inner.value, ast.Tuple)
        ):
            pairs = zip(inner.targets[0].elts, inner.value.elts, strict=False)
            values = [value for target, value in pairs if isinstance(target, ast.Name) and target.id == node.id]
            if values and site.source.function(inner) is site.source.function(node):  # asked last: it takes longest
                found += values
    return found


def is_told_by_name(site: Site, node: ast.Name) -> bool:
    """Return True if the annotation or the usual name of a parameter says that it is a number."""
    function = site.work.names.scope_of(node).node
    arguments = all_arguments(function.args) if isinstance(function, Function) else []
    annotation = next((argument.annotation for argument in arguments if argument.arg == node.id), None)
    if annotation is not None:
        return isinstance(annotation, ast.Name) and annotation.id == "int"
    return node.id.lower() in HABIT


def is_passed_number(site: Site, node: ast.Name, depth: int) -> bool:
    """Return True for a parameter for which every call in the file passes a number."""
    function = site.work.names.scope_of(node).node
    if not isinstance(function, ast.FunctionDef):
        return False
    holder = site.source.parents[function]
    made = function.name == "__init__" and isinstance(holder, ast.ClassDef)
    entries = [parameter.arg for parameter in [*function.args.posonlyargs, *function.args.args]][int(made) :]
    called = holder.name if made else function.name  # type: ignore[attr-defined]
    calls = site.work.index.calls.get(f"{site.work.names.own}.{called}", [])
    given = [
        dict(zip(entries, call.args, strict=False))
        | {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        for call in calls
    ]
    values = [passed[node.id] for passed in given if node.id in passed]
    return bool(values) and len(values) == len(calls) and all(is_number(site, value, depth + 1) for value in values)


def is_worker_number(site: Site, node: ast.Name) -> bool:
    """Return True for the first parameter of a function that mp.spawn starts."""
    function = site.work.names.scope_of(node).node
    if not isinstance(function, ast.FunctionDef) or not function.args.args or function.args.args[0].arg != node.id:
        return False
    spawned = [call for name in SPAWN for call in site.work.index.calls.get(name, []) if call.args]
    return any(isinstance(call.args[0], ast.Name) and call.args[0].id == function.name for call in spawned)


def is_counter(site: Site, node: ast.Name) -> bool:
    """Return True for the variable of a loop over `range(…)`."""
    for parent in site.source.ancestors(node):
        if isinstance(parent, ast.For) and isinstance(parent.target, ast.Name) and parent.target.id == node.id:
            return (
                isinstance(parent.iter, ast.Call)
                and isinstance(parent.iter.func, ast.Name)
                and parent.iter.func.id == "range"
            )
    return False


def values_of_name(site: Site, node: ast.Name) -> list[ast.expr]:
    """Return the values that are assigned to a name."""
    bound = site.work.names.lookup(node.id, site.work.names.scope_of(node)) or []
    return [what for what in bound if isinstance(what, ast.expr)]


def is_partly_number(site: Site, node: ast.Name) -> bool:
    """Return True for a name that is assigned a number in one place and something else in another."""
    values = [
        part
        for value in values_of_name(site, node)
        for part in ([value.body, value.orelse] if isinstance(value, ast.IfExp) else [value])
    ]
    found = [is_number(site, value) for value in values]
    return any(found) and not all(found)


def find_option(site: Site, name: str) -> ast.Call | None:
    """Return the add_argument of this file that declares an option."""
    for call in site.work.index.methods.get("add_argument", []):
        texts = [
            argument.value
            for argument in call.args
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
        ]
        if name in [text.lstrip("-").replace("-", "_") for text in texts]:
            return call
    return None


def keyword_value(call: ast.Call, name: str) -> ast.expr | None:
    """Return the value of a keyword argument, if it is given."""
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def is_habit(node: ast.AST) -> bool:
    """Return True for a name or attribute with a usual name for the number of a device."""
    name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
    return isinstance(name, str) and name.lower() in HABIT


def is_torchs(site: Site, receiver: ast.expr) -> bool:
    """Return True unless the receiver is an object of another library, or of a class that is not known."""
    made = site.values.origin(receiver)
    if isinstance(made, ast.Call) and site.values.kind(made) is None and isinstance(made.func, ast.Name):
        name = site.qualified(made.func) or made.func.id
        return name.partition(".")[0] in FAMILY or not made.func.id[:1].isupper()
    return not is_foreign(site.qualified(receiver)) and not (isinstance(receiver, ast.Name) and receiver.id in FOREIGN)


def branches(value: ast.expr) -> Iterator[ast.expr]:
    """Yield the possible values of a conditional expression."""
    if isinstance(value, ast.IfExp):
        yield from branches(value.body)
        yield from branches(value.orelse)
    else:
        yield value
