"""Expressions of a file that are devices, such as "cuda" in `name = "cuda"; model.to(name)`.

Each expression that PyTorch takes for a device, or that a name with "device" gets, is traced back to string literals:
through names, attributes, keys of dictionaries, parameters, conditional expressions. Other strings do not count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from viaduct.cards import DEVICE_TYPES
from viaduct.cards.limits import Bilingual
from viaduct.migration.classes import OBJECT, find_class, find_method_owner, is_module
from viaduct.migration.device_texts import device_expression, device_literal, device_number_text, is_device_name
from viaduct.migration.flow_survey import CHECKPOINT_LOADS
from viaduct.migration.lookups import (
    argument_values,
    bind_arguments,
    branches,
    contains_call,
    elements,
    keyword_value,
    last_name,
    literal_text,
    mark_once,
    method_name,
    parameter_default,
    plain_name,
    positional_parameters,
)
from viaduct.migration.names import Function, all_parameters
from viaduct.migration.project import returns_of
from viaduct.migration.rule import Site, cache_per_file
from viaduct.migration.rules.torch._helper import get_availability_tests, report_if_in_torchscript

# Libraries whose `device="cuda"`, `.to` and `.cuda` are not PyTorch's.
OTHER_LIBRARIES = (
    {"jax", "mxnet", "paddle", "tensorflow", "onnxruntime", "tensorrt", "tvm"}
    | {"catboost", "lightgbm", "xgboost", "sklearn", "faiss", "ray"}
    | {"cudf", "cuml", "cupy", "numba", "pycuda", "taichi", "warp"}
)
# Functions and methods to which "cuda" is a key, a name or a message: `getattr(torch, "cuda")`.
FUNCTIONS_WITHOUT_DEVICE = ("get", "pop", "setdefault", "hasattr", "getattr", "delattr", "print", "add", "skipif")
# Prefixes of functions of torch for which "cuda" names a kind of kernel, not a device.
KERNEL_APIS = ("torch.library.", "torch.ops.", "torch.utils.cpp_extension.", "torch._C.")
# Position at which a function of PyTorch takes a device.
DEVICE_POSITIONS = {
    "torch.device": 0,
    "torch.load": 1,
    "torch.jit.load": 1,
    "torch.set_default_device": 0,
    "torch.Generator": 0,
    **{f"torch.{card}.{name}": 0 for card in DEVICE_TYPES for name in ("set_device", "device", "synchronize")},
}
MOVING_METHODS = ("to", *DEVICE_TYPES)  # methods that move a tensor or module to a device
TEXT_METHODS = ("split", "partition", "lower", "strip")  # string methods that keep a device's name in their result
OTHER_DEVICES = ("cpu", "mps", "meta", "disk", "xpu")  # "disk": in device maps of accelerate
FIELD_FUNCTIONS = ("field", "Field", "Option", "Argument")  # functions of dataclasses, pydantic, typer with a default
STORING_NODES = (ast.Assign, ast.For, ast.comprehension, ast.Dict, ast.Call)  # nodes that `record_values` handles
ASSIGNING_NODES = (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.For)
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
STARTING_NODES = (*ASSIGNING_NODES, *DEFINITIONS, ast.Call, ast.IfExp)  # nodes that `trace_node` handles


def is_of_other_library(name: str | None) -> bool:
    """Return True for a name of a library whose devices are not PyTorch's."""
    return name is not None and name.partition(".")[0] in OTHER_LIBRARIES


def is_method_of_project(site: Site, receiver: ast.expr, method: str) -> bool:
    """Return True if a class of the project is known to define the method that is called on the receiver."""
    kind = site.values.kind(receiver) or ""
    project, own_class = site.file.project, site.source.class_around(receiver)
    name = f"{site.file.names.module}.{own_class.name}" if own_class is not None else ""
    classes: tuple[str, ...] = ()
    if kind.startswith(OBJECT):  # an instance of the project's class of that name
        classes = (kind.removeprefix(OBJECT),)
    elif plain_name(receiver) == "self" and name:
        classes = (name,)
    elif isinstance(receiver, ast.Call) and plain_name(receiver.func) == "super" and name in project.classes:
        classes = project.classes[name].bases
    return any(find_method_owner(project, base, method) is not None for base in classes)


@dataclass
class Devices:
    """Devices in the present text of a file."""

    site: Site
    cuda_literals: dict[ast.expr, None] = field(default_factory=dict)  # texts of CUDA devices; an ordered set
    device_names: set[tuple[int, str]] = field(default_factory=set)  # (id of the scope, name)
    device_keys: set[str] = field(default_factory=set)  # NAME of x.NAME and x["NAME"] that hold a device
    traced: set[ast.AST] = field(default_factory=set)  # expressions that `trace` has visited
    assigned_values: dict[str, list[ast.expr]] = field(default_factory=dict)  # values by target, such as `self.x`
    dict_values: dict[str, list[ast.expr]] = field(default_factory=dict)  # values by key, of all dictionaries
    iterables: dict[str, list[ast.expr]] = field(default_factory=dict)  # iterables of loops by variable

    def __post_init__(self) -> None:
        for node in self.site.source.nodes_of_types(*STORING_NODES):
            self.record_values(node)
        for node in self.site.source.nodes_of_types(*STARTING_NODES):
            self.trace_node(node)

    def record_values(self, node: ast.AST) -> None:
        """Record the values that a node assigns to attributes, keys and loop variables."""
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Attribute | ast.Subscript):
                    self.assigned_values.setdefault(ast.unparse(target), []).append(node.value)
        elif isinstance(node, ast.For | ast.comprehension) and isinstance(node.target, ast.Name):
            self.iterables.setdefault(node.target.id, []).append(node.iter)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    self.dict_values.setdefault(key.value, []).append(value)
        elif isinstance(node, ast.Call) and plain_name(node.func) == "dict":
            for keyword in node.keywords:
                if keyword.arg:
                    self.dict_values.setdefault(keyword.arg, []).append(keyword.value)

    def trace_node(self, node: ast.AST) -> None:
        """Trace what a node uses as devices: arguments, values of names with "device", choices by availability."""
        if isinstance(node, ast.Call):
            for value in self.find_device_arguments(node):
                self.trace(value)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(map(self.is_target_named_device, targets)) or self.is_under_availability(node):
                self.trace(node.value)
                self.trace_annotation(node.annotation if isinstance(node, ast.AnnAssign) else None)
        elif isinstance(node, ast.IfExp) and self.mentions_availability(node.test) and not self.is_key(node):
            self.trace(node)
        elif isinstance(node, ast.For) and self.is_target_named_device(node.target):
            self.trace(node.iter)
        elif isinstance(node, Function):
            self.trace_definition(node)

    def trace_definition(self, node: Function) -> None:
        """Trace defaults of parameters, and results of functions, that have "device" in their names."""
        for parameter in all_parameters(node.args):
            if is_device_name(parameter.arg):
                self.trace(parameter_default(node, parameter.arg))
                self.trace_annotation(parameter.annotation)
        if not isinstance(node, ast.Lambda) and is_device_name(node.name):
            for statement in returns_of(self.site.file.names, node):
                self.trace(statement.value)

    def trace_annotation(self, annotation: ast.expr | None) -> None:
        """Trace the values of a Literal: `device: Literal["cuda", "cpu"]`."""
        for node in ast.walk(annotation) if annotation is not None else ():
            if isinstance(node, ast.Subscript) and (self.site.qualified_name(node.value) or "").endswith(".Literal"):
                self.trace(node.slice)

    @staticmethod
    def is_target_named_device(target: ast.AST) -> bool:
        """Return True for a variable or attribute with a name such as `device` or `train_device`."""
        if isinstance(target, ast.Name):
            return is_device_name(target.id)
        return isinstance(target, ast.Attribute) and is_device_name(target.attr)

    def is_key(self, node: ast.expr) -> bool:
        """Return True for a key, as in `BACKENDS["cuda" if torch.cuda.is_available() else "cpu"]`."""
        parent = self.site.source.parents[node]
        if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute):
            return parent.func.attr == "get" and parent.args[:1] == [node]
        return isinstance(parent, ast.Subscript) and parent.slice is node

    def mentions_availability(self, test: ast.expr) -> bool:
        """Return True for a condition with `torch.cuda.is_available()` or a variable that holds its result."""
        origins = (self.site.values.assigned_value(part) for part in ast.walk(test))
        return any(contains_call(self.site, origin, get_availability_tests(self.site)) for origin in origins)

    def is_under_availability(self, node: ast.AST) -> bool:
        """Return True for the assignment in `if torch.cuda.is_available(): name = "cuda"`."""
        if not isinstance(node, ast.stmt) or device_literal(getattr(node, "value", None)) is None:
            return False
        parent = self.site.source.parents.get(node)
        return isinstance(parent, ast.If) and node in parent.body and self.mentions_availability(parent.test)

    def find_device_arguments(self, call: ast.Call) -> Iterator[ast.expr]:
        """Yield the arguments of a call that are taken for a device."""
        name = self.site.qualified_name(call.func)
        if is_of_other_library(name) or (name or "").startswith(KERNEL_APIS):
            return
        yield from (keyword.value for keyword in call.keywords if keyword.arg and is_device_name(keyword.arg))
        if name == "functools.partial" and call.args and self.site.qualified_name(call.args[0]) == "torch.device":
            yield from (*call.args[1:2], *(keyword.value for keyword in call.keywords if keyword.arg == "type"))
        method = method_name(call)
        if name is not None and name.startswith("torch."):
            yield from self.find_device_arguments_of_torch(call, name)
        elif method in MOVING_METHODS and call.args and not is_method_of_project(self.site, call.func.value, method):  # type: ignore[attr-defined]
            yield call.args[0]
        elif method == "parametrize" and len(call.args) > 1:
            if isinstance(call.args[0], ast.Constant) and is_device_name(str(call.args[0].value)):
                yield call.args[1]
        else:
            parameters = zip(self.find_parameters(call, name), call.args, strict=False)
            yield from (value for parameter, value in parameters if is_device_name(parameter))

    def find_device_arguments_of_torch(self, call: ast.Call, name: str) -> Iterator[ast.expr]:
        """Yield the arguments of a function of torch that are a device by their position, or a CUDA text."""
        if name.startswith("torch.hub."):
            return  # names of repositories and models
        for position, value in enumerate(call.args):
            if position == DEVICE_POSITIONS.get(name) or device_literal(value) is not None:
                yield value
        if name == "torch.device":
            yield from (keyword.value for keyword in call.keywords if keyword.arg == "type")

    def find_parameters(self, call: ast.Call, name: str | None) -> tuple[str, ...]:
        """Return the positional parameters of a function, class or method of the project; () for anything else."""
        project = self.site.file.project
        if name in project.functions:
            _, function = project.functions[name]
            return tuple(positional_parameters(function))
        class_name, method = (find_class(project, name) if name else None), "__init__"
        if class_name is None and isinstance(call.func, ast.Attribute):
            kind = self.site.values.kind(call.func.value) or ""
            method = call.func.attr
            class_name = kind.removeprefix(OBJECT) if kind.startswith(OBJECT) else None
        owner = find_method_owner(project, class_name, method) if class_name else None
        return project.classes[owner].methods[method] if owner else ()

    # ---- tracing back

    def trace(self, node: ast.AST | None) -> None:
        """Record the CUDA literals that an expression may evaluate to."""
        if node is None or node in self.traced:
            return
        self.traced.add(node)
        literal = device_literal(node)
        if literal is not None:
            self.cuda_literals[literal] = None
        elif isinstance(node, ast.IfExp):
            self.trace(node.body)
            self.trace(node.orelse)
        elif isinstance(node, ast.BoolOp | ast.List | ast.Tuple | ast.Set):
            for value in node.values if isinstance(node, ast.BoolOp) else node.elts:
                self.trace(value)
        elif isinstance(node, ast.NamedExpr | ast.Starred | ast.Await):
            self.trace(node.value)
        elif isinstance(node, ast.Name):
            self.trace_name(node)
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
            self.trace(node.elt)
        elif isinstance(node, ast.Dict | ast.DictComp):
            self.trace_entries(node)
        elif isinstance(node, ast.Attribute | ast.Subscript):
            self.trace_stored(node)
        elif isinstance(node, ast.Call):
            self.trace_call(node)

    def trace_name(self, node: ast.Name) -> None:
        """Trace all values that a name may have."""
        names = self.site.file.names
        scope = names.binding_scope(node.id, names.scope_of(node))
        self.device_names.add((id(scope), node.id))
        for value in scope.bindings[node.id] if scope is not None else ():
            if isinstance(value, ast.expr):
                self.trace(value)
        for iterable in self.iterables.get(node.id, []):
            if self.site.source.function_around(iterable) is self.site.source.function_around(node):
                is_slice = isinstance(iterable, ast.Subscript) and isinstance(iterable.slice, ast.Slice)
                self.trace_entries(self.site.values.assigned_value(iterable.value if is_slice else iterable))  # type: ignore[attr-defined]
        if scope is not None and isinstance(scope.node, Function):
            self.trace_parameter(scope.node, node.id)

    def trace_parameter(self, function: Function, parameter: str) -> None:
        """Trace the default of a parameter and the arguments that calls in this file pass for it."""
        self.trace(parameter_default(function, parameter))
        qualified = f"{self.site.file.names.module}.{getattr(function, 'name', '')}"
        for call in self.site.file.index.calls.get(qualified, []):
            self.trace(bind_arguments(call, positional_parameters(function)).get(parameter))

    def trace_entries(self, table: ast.AST) -> None:
        """Trace every entry of `["cpu", "cuda"]`, `{"encoder": "cuda:0"}`, if all look like devices."""
        values = get_table_entries(table)
        if all(self.looks_like_device(value) for value in values):
            for value in values:
                self.trace(value)

    def looks_like_device(self, value: ast.expr) -> bool:
        """Return True for torch.device(…), a text of a CUDA device, or another device, in all branches."""
        return all(
            (isinstance(part, ast.Call) and self.site.qualified_name(part.func) == "torch.device")
            or device_literal(part) is not None
            or literal_text(part).partition(":")[0] in OTHER_DEVICES
            for part in branches(value)
        )

    def trace_stored(self, node: ast.Attribute | ast.Subscript) -> None:
        """Trace the values that are assigned to an attribute or an entry of a dictionary."""
        if isinstance(node, ast.Subscript):
            for table in (
                self.site.values.assigned_value(node.value),
                *self.assigned_values.get(ast.unparse(node.value), []),
            ):
                self.trace_entries(table)
        for value in self.assigned_values.get(ast.unparse(node), []):
            self.trace(value)
        self.trace_key(node.attr if isinstance(node, ast.Attribute) else literal_text(node.slice))

    def trace_key(self, key: str) -> None:
        """Trace the literals and conditional expressions under a key in all dictionaries of the file."""
        if key:
            self.device_keys.add(key)
            for value in self.dict_values.get(key, []):
                if device_literal(value) is not None or isinstance(value, ast.IfExp):
                    self.trace(value)

    def trace_call(self, node: ast.Call) -> None:
        """Trace a call that returns a device: torch.device, str, a default, a function of this file."""
        name = self.site.qualified_name(node.func)
        function = plain_name(node.func)
        method = method_name(node)
        if name in ("torch.device", "os.getenv", "os.environ.get") or function == "str":
            position = 1 if name and name.startswith("os.") else 0  # the default of os.getenv
            self.trace(node.args[position] if len(node.args) > position else None)
        elif function == "getattr" or method in ("get", "setdefault", "pop"):
            arguments = node.args[1:] if function == "getattr" else node.args  # key, default
            self.trace(arguments[1] if len(arguments) > 1 else None)
            self.trace_key(literal_text(arguments[0]) if arguments else "")
        elif name is not None and name.rpartition(".")[2] in FIELD_FUNCTIONS:
            self.trace(node.args[0] if node.args else None)
            self.trace(keyword_value(node, "default"))
        elif name is not None:
            self.trace_returns(name)

    def trace_returns(self, name: str) -> None:
        """Trace the results of a top-level function of this file."""
        module = self.site.file.names.module
        for node in self.site.source.tree.body:
            if isinstance(node, ast.FunctionDef) and f"{module}.{node.name}" == name:
                for statement in returns_of(self.site.file.names, node):
                    self.trace(statement.value)

    def is_device(self, node: ast.AST) -> bool:
        """Return True if an expression in a comparison is a device, its type or its text."""
        if isinstance(node, ast.Attribute):
            if node.attr == "type":
                return self.is_device(node.value)
            return is_device_name(node.attr) or node.attr in self.device_keys
        if isinstance(node, ast.NamedExpr):
            return self.is_device(node.value) or self.is_device(node.target)
        if isinstance(node, ast.Name):
            return is_device_name(node.id) or self.holds_device(node) or self.site.values.kind(node) == "torch_device"
        if isinstance(node, ast.Subscript):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if isinstance(key, str):
                return is_device_name(key) or key in self.device_keys
            return self.is_device(node.value)
        return isinstance(node, ast.Call) and self.is_device_call(node)

    def is_device_call(self, node: ast.Call) -> bool:
        """Return True for a call that returns a device or its text."""
        function = plain_name(node.func)
        if function == "str" and node.args:
            return self.is_device(node.args[0])
        if function == "getattr" and len(node.args) > 1:
            return isinstance(node.args[1], ast.Constant) and is_device_name(str(node.args[1].value))
        if self.site.qualified_name(node.func) == "torch.device":
            return True
        keeps_name = isinstance(node.func, ast.Attribute) and node.func.attr in TEXT_METHODS
        return keeps_name and self.is_device(node.func.value)  # type: ignore[attr-defined]

    def holds_device(self, node: ast.Name) -> bool:
        """Return True for a name that is known to hold a device."""
        names = self.site.file.names
        return (id(names.binding_scope(node.id, names.scope_of(node))), node.id) in self.device_names


def get_table_entries(table: ast.AST) -> list[ast.expr]:
    """Return the entries of a list, tuple, dict or comprehension; none for a dict such as a map_location.

    The keys of a map_location are devices; the rule `map_location` edits it.
    """
    if isinstance(table, ast.List | ast.Tuple):
        return table.elts
    if isinstance(table, ast.ListComp | ast.DictComp):
        return [table.value if isinstance(table, ast.DictComp) else table.elt]
    if isinstance(table, ast.Call) and plain_name(table.func) == "dict" and not table.args:
        return argument_values(table)
    return table.values if isinstance(table, ast.Dict) and not any(map(device_literal, table.keys)) else []


@cache_per_file
def find_devices(site: Site) -> Devices:
    return Devices(site)


def get_qualified_root(site: Site, node: ast.AST) -> str | None:
    """Return the qualified name at the beginning of a chain of calls, attributes and subscripts."""
    while isinstance(node, ast.Call | ast.Attribute | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return site.qualified_name(node)


def find_constructor_texts(site: Site) -> Iterator[ast.expr]:
    """Yield the CUDA texts within torch.device(…) in all comparisons of a file."""
    for node in site.source.nodes_of_type(ast.Compare):
        for side in (node.left, *node.comparators):
            yield from find_texts_in_constructor(site, side)


def find_texts_in_constructor(site: Site, side: ast.expr) -> Iterator[ast.expr]:
    """Yield the CUDA texts within `torch.device("cuda:0")`, also in a tuple, in str() or in a branch."""
    parts = [part for branch in branches(side) for part in elements(branch)]
    if isinstance(side, ast.Call) and plain_name(side.func) == "str":
        parts = side.args[:1]
    if parts != [side]:  # the side is a tuple, str() or a conditional expression
        for part in parts:
            yield from find_texts_in_constructor(site, part)
    elif isinstance(side, ast.Call) and site.qualified_name(side.func) == "torch.device":
        values = [*side.args[:1], *(keyword.value for keyword in side.keywords)]
        yield from (text for value in values for text in branches(value) if device_literal(text) is not None)


UNEDITABLE_DEVICE: tuple[Bilingual, Bilingual] = (  # a message for one card, and one for `--to any`
    (
        "this names a CUDA device and cannot be edited safely: write {card.device} instead of cuda",
        "此处指定了 CUDA 设备但无法安全改写:请将 cuda 手工改为 {card.device}",
    ),
    (
        "this names a CUDA device and cannot be edited safely: write accelerator.name(NUMBER)",
        "此处指定了 CUDA 设备但无法安全改写:请改为 accelerator.name(编号)",
    ),
)


def replace_device_text(site: Site, literal: ast.expr) -> None:
    """Replace a text that begins with a literal, such as `"cuda:%d" % rank`, by the target's device, or report it.

    With `--to any`, `torch.device(text)` is replaced as a whole.
    """
    node = device_expression(site.source, literal)
    if site.file.is_left_alone(node) or not mark_once(site, "device", node):
        return
    if device_number_text(site.source, node) is not None and report_if_in_torchscript(site, node):
        return
    new, call = None, site.source.parents.get(node)
    if isinstance(call, ast.Call) and call.args[:1] == [node] and site.qualified_name(call.func) == "torch.device":
        new = site.target.render_torch_device(site, call)
    if new is not None:
        node = call  # type: ignore[assignment]
    else:
        new = site.target.render_device_text(site, node)
    if new is None:
        site.request_review(*site.target.select_message(*UNEDITABLE_DEVICE), node=literal)
        return
    site.edit.replace_node(node, new)
    message = site.target.select_message(
        ("the device is {card.device}", "设备改为 {card.device}"),
        (f"the device is the available card: {new}", f"设备改为现有的加速卡:{new}"),
    )
    site.report_change(*message, node=literal)


def report_possible_device(site: Site, node: ast.Constant, device: str, devices: Devices) -> None:
    """Report, once for each line, a string that may be a device: in an assignment, a default or a dict of devices.

    `device` is the text to write instead.
    """
    parent = site.source.parents[node]
    if isinstance(parent, ast.Dict):
        is_possible = is_in_device_dict(node, parent, device, devices)
    else:
        if isinstance(parent, ast.IfExp):
            parent = site.source.parents[parent]
        is_possible = isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr | ast.arguments)
    if is_possible and not site.source.is_in_f_string(node) and mark_once(site, "possible device", node.lineno):
        site.request_review(
            f"{node.value!r} was not found to be used as a device and is unchanged; if it is one, write {device}",
            zh=f"未能确认 {node.value!r} 被用作设备,保持不变;若是设备,请改为 {device}",
            risk="low",
            node=node,
        )


def is_in_device_dict(node: ast.Constant, table: ast.Dict, device: str, devices: Devices) -> bool:
    """Return True for a value of a dict if its key has "device" in it, or if another value is a device."""
    keys = [key for key, value in zip(table.keys, table.values, strict=True) if value is node]
    if any(isinstance(key, ast.Constant) and is_device_name(str(key.value)) for key in keys):
        return True
    device_type = device.partition(":")[0]
    names_card = (literal_text(value).partition(":")[0] == device_type for value in table.values)
    return bool(keys) and (any(names_card) or any(value in devices.cuda_literals for value in table.values))


def is_bound_cuda_method(site: Site) -> bool:
    """Return True for the method of a tensor or module that is not called: `move = x.cuda`."""
    node, parent = site.node, site.source.parents.get(site.node)
    if not isinstance(node.ctx, ast.Load) or isinstance(parent, ast.Attribute | ast.IfExp):
        return False
    if isinstance(parent, ast.Call) and parent.func is node:
        return False
    if site.qualified_name(node) is not None or is_method_of_project(site, node.value, "cuda"):
        return False
    is_flag = plain_name(node.value) == "self"  # `self.cuda` is usually a setting
    return not is_flag and is_torch_object(site, node.value)


def is_torch_object(site: Site, receiver: ast.expr) -> bool:
    """Return True for a tensor, a module, `self`, `super()`, or the storage in a map_location."""
    kind = site.values.kind(receiver) or ""
    if kind.startswith(OBJECT):
        return is_module(site.file.project, kind.removeprefix(OBJECT))
    is_own = plain_name(receiver) == "self"
    is_super = isinstance(receiver, ast.Call) and plain_name(receiver.func) == "super"
    return kind in ("tensor", "module", "class_loss") or is_own or is_super or is_storage(site, receiver)


def is_storage(site: Site, receiver: ast.expr) -> bool:
    """Return True for `storage` in `torch.load(path, map_location=lambda storage, place: storage.cuda(0))`."""
    function = site.file.names.scope_of(receiver).node if isinstance(receiver, ast.Name) else None
    argument = site.source.parents.get(function) if isinstance(function, ast.Lambda) else None
    if isinstance(argument, ast.keyword):
        return argument.arg == "map_location"
    return isinstance(argument, ast.Call) and site.qualified_name(argument.func) in CHECKPOINT_LOADS


def is_no_device_or_reported(site: Site) -> bool:
    """Return True if the code around the site's string shows that it is no device, or if another rule reports it.

    Comparisons are reported by `device_compare`, values of dicts by `device_string`.
    """
    parent = site.source.parents[site.node]
    if isinstance(parent, ast.Expr | ast.Compare | ast.MatchValue | ast.Dict):  # ast.Expr: a docstring
        return True
    child, names = site.node, []
    for ancestor in site.source.ancestors(site.node):
        if isinstance(ancestor, ast.Subscript) and child is ancestor.slice:
            return True
        if isinstance(ancestor, ast.Call):
            names.append(site.qualified_name(ancestor.func) or "")
        child = ancestor
    if any(is_of_other_library(name) or name.startswith(KERNEL_APIS) for name in names):
        return True
    return isinstance(parent, ast.Call) and last_name(parent.func) in FUNCTIONS_WITHOUT_DEVICE
