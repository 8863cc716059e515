"""Expressions of a file that are devices: they reach `.to(…)`, `device=…`, `torch.device(…)`, or are named so.

From every place where PyTorch takes a device the text is followed backwards: through names, attributes, keys of
dictionaries, parameters and their defaults, conditional expressions. A text that nothing leads to is no device.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from viaduct.migration.classes import OBJECT, class_called, owner_of
from viaduct.migration.names import all_arguments
from viaduct.migration.project import returns_of
from viaduct.migration.rule import Site, answer_once
from viaduct.migration.rules.torch._device_texts import device_like, head

# Libraries whose `device="cuda"`, `.to` and `.cuda` are not PyTorch's.
FOREIGN = {
    *("catboost", "cudf", "cuml", "cupy", "faiss", "jax", "lightgbm", "mxnet", "numba", "onnxruntime", "paddle"),
    *("ray", "sklearn", "taichi", "tensorflow", "tensorrt", "tvm", "warp", "xgboost", "pycuda"),
}
# Functions of torch for which "cuda" names a kind of kernel.
NOT_DEVICES = ("torch.library.", "torch.ops.", "torch.utils.cpp_extension.", "torch._C.")
# Position at which a function of PyTorch takes a device.
POSITIONS = {
    "torch.device": 0,
    "torch.load": 1,
    "torch.jit.load": 1,
    "torch.set_default_device": 0,
    "torch.Generator": 0,
    **{
        f"torch.{card}.{name}": 0 for card in ("cuda", "npu", "mlu") for name in ("set_device", "device", "synchronize")
    },
}
MOVERS = ("to", "cuda", "npu", "mlu")
AVAILABLE = {f"torch.{card}.is_available" for card in ("cuda", "npu", "mlu", "accelerator")}
NOTED = (ast.Assign, ast.For, ast.comprehension, ast.Dict, ast.Call)  # what `note` knows
LOOKED_AT = (  # what `look_at` knows
    *(ast.Call, ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.IfExp, ast.For),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda),
)
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def is_foreign(name: str | None) -> bool:
    """Return True for a name of a library whose devices are not PyTorch's."""
    return name is not None and name.partition(".")[0] in FOREIGN


def receiver_class(site: Site, node: ast.expr, method: str) -> str | None:
    """The project's class whose own method is called here, as far as the text shows it."""
    kind = site.values.kind(node) or ""
    if kind.startswith(OBJECT):
        return owner_of(site.work.project, kind.removeprefix(OBJECT), method)
    if isinstance(node, ast.Name) and node.id == "self":
        holder = next((parent for parent in site.source.ancestors(node) if isinstance(parent, ast.ClassDef)), None)
        return owner_of(site.work.project, f"{site.work.names.own}.{holder.name}", method) if holder else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super":
        holder = next(
            (ancestor for ancestor in site.source.ancestors(node) if isinstance(ancestor, ast.ClassDef)), None
        )
        known = site.work.project.classes.get(f"{site.work.names.own}.{holder.name}") if holder else None
        found = [owner_of(site.work.project, base, method) for base in known.bases] if known else []
        return next((item for item in found if item), None)
    return None


def default_of(definition: Definition, parameter: str) -> ast.expr | None:
    """Return the default of a parameter, if it has one."""
    entries = [*definition.args.posonlyargs, *definition.args.args]
    given: dict[str, ast.expr | None] = dict(
        zip([entry.arg for entry in reversed(entries)], reversed(definition.args.defaults), strict=False)
    )
    given |= {
        param.arg: value for param, value in zip(definition.args.kwonlyargs, definition.args.kw_defaults, strict=True)
    }
    return given.get(parameter)


@dataclass
class Devices:
    """Built for one file as it stands. `found`: the literals that are CUDA devices, as they are written."""

    site: Site
    found: dict[ast.expr, None] = field(default_factory=dict)
    names: set[tuple[int, str]] = field(default_factory=set)  # (scope, name) of what holds a device
    attributes: set[str] = field(default_factory=set)  # x.NAME and x["NAME"] that hold one
    asked: set[ast.AST] = field(default_factory=set)
    stored: dict[str, list[ast.expr]] = field(default_factory=dict)  # `self.place`, `cfg["place"]` -> what is assigned
    keyed: dict[str, list[ast.expr]] = field(default_factory=dict)  # key of a dictionary -> its values

    looped: dict[str, list[ast.expr]] = field(default_factory=dict)  # name -> what a loop over it goes through

    def __post_init__(self) -> None:
        for node in self.site.source.of_kinds(*NOTED):
            self.note(node)
        for node in self.site.source.of_kinds(*LOOKED_AT):
            self.look_at(node)

    # ---- what is where

    def note(self, node: ast.AST) -> None:
        """Record where a value is stored, so that it can be followed backwards."""
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Attribute | ast.Subscript):
                    self.stored.setdefault(ast.unparse(target), []).append(node.value)
        elif isinstance(node, ast.For | ast.comprehension) and isinstance(node.target, ast.Name):
            self.looped.setdefault(node.target.id, []).append(node.iter)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    self.keyed.setdefault(key.value, []).append(value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
            for keyword in node.keywords:
                if keyword.arg:
                    self.keyed.setdefault(keyword.arg, []).append(keyword.value)

    def look_at(self, node: ast.AST) -> None:
        """Start tracing from a place that takes a device, or from something that is called one."""
        if isinstance(node, ast.Call):
            for value in self.taken_by(node):
                self.trace(value)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(self.is_called_device(target) for target in targets) or self.only_if_available(node):
                self.trace(node.value)
                self.trace_annotation(node.annotation if isinstance(node, ast.AnnAssign) else None)
        elif isinstance(node, ast.IfExp) and self.asks_whether_available(node.test) and not self.is_key(node):
            self.trace(node)
        elif isinstance(node, ast.For) and self.is_called_device(node.target):
            self.trace(node.iter)
        elif isinstance(node, Definition):
            self.look_at_definition(node)

    def look_at_definition(self, node: Definition) -> None:
        """Trace the defaults of parameters that are called a device."""
        for parameter in all_arguments(node.args):
            default = default_of(node, parameter.arg)
            if device_like(parameter.arg):
                self.trace(default)
                self.trace_annotation(parameter.annotation)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and device_like(node.name):
            for statement in returns_of(self.site.work.names, node):
                self.trace(statement.value)

    def trace_annotation(self, annotation: ast.expr | None) -> None:
        """`device: Literal["cuda", "cpu"]`."""
        for node in ast.walk(annotation) if annotation is not None else ():
            if isinstance(node, ast.Subscript) and (self.site.qualified(node.value) or "").endswith(".Literal"):
                self.trace(node.slice)

    @staticmethod
    def is_called_device(target: ast.AST) -> bool:
        """Return True for a variable or attribute whose name says device."""
        if isinstance(target, ast.Name):
            return device_like(target.id)
        return isinstance(target, ast.Attribute) and device_like(target.attr)

    def is_key(self, node: ast.expr) -> bool:
        """`BACKENDS["cuda" if torch.cuda.is_available() else "cpu"]`: what the table calls it is its own affair."""
        holder = self.site.source.parents[node]
        if isinstance(holder, ast.Call) and isinstance(holder.func, ast.Attribute):
            return holder.func.attr == "get" and holder.args[:1] == [node]
        return isinstance(holder, ast.Subscript) and holder.slice is node

    def asks_whether_available(self, test: ast.expr) -> bool:
        """Return True for a condition that asks whether there is a card."""
        names, values = self.site.work.names, self.site.values
        inner = [
            node for part in ast.walk(test) for node in ast.walk(values.origin(part)) if isinstance(node, ast.Call)
        ]
        return any(names.qualified(item.func) in AVAILABLE for item in inner)

    def only_if_available(self, node: ast.AST) -> bool:
        """`if torch.cuda.is_available(): where = "cuda"`."""
        if not isinstance(node, ast.stmt) or head(getattr(node, "value", None)) is None:
            return False
        holder = self.site.source.parents.get(node)
        return isinstance(holder, ast.If) and node in holder.body and self.asks_whether_available(holder.test)

    # ---- what takes a device

    def taken_by(self, call: ast.Call) -> Iterator[ast.expr]:
        """Yield the arguments of a call that are taken for a device."""
        name = self.site.qualified(call.func)
        if is_foreign(name) or (name or "").startswith(NOT_DEVICES):
            return
        yield from (keyword.value for keyword in call.keywords if keyword.arg and device_like(keyword.arg))
        if name == "functools.partial" and (self.site.qualified(call.args[0]) if call.args else "") == "torch.device":
            yield from (*call.args[1:2], *(given.value for given in call.keywords if given.arg == "type"))
        if name is not None and name.startswith("torch."):
            yield from self.taken_by_torch(call, name)
        elif isinstance(call.func, ast.Attribute) and call.func.attr in MOVERS and call.args:
            if receiver_class(self.site, call.func.value, call.func.attr) is None:
                yield call.args[0]
            else:
                yield from self.taken_by_own(call, name)
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "parametrize" and len(call.args) > 1:
            if isinstance(call.args[0], ast.Constant) and device_like(str(call.args[0].value)):
                yield call.args[1]
        else:
            yield from self.taken_by_own(call, name)

    def taken_by_torch(self, call: ast.Call, name: str) -> Iterator[ast.expr]:
        """Yield the arguments that a function of torch takes for a device."""
        location = POSITIONS.get(name, -1)
        if name.startswith("torch.hub."):
            return  # names of repositories and models; what is given by keyword goes to the network
        for position, value in enumerate(call.args):
            if position == location or head(value) is not None:
                yield value
        if name == "torch.device":
            yield from (keyword.value for keyword in call.keywords if keyword.arg == "type")

    def taken_by_own(self, call: ast.Call, name: str | None) -> Iterator[ast.expr]:
        """A parameter called device, of a function, class or method of the project."""
        for parameter, value in zip(self.parameters(call, name), call.args, strict=False):
            if device_like(parameter):
                yield value

    def parameters(self, call: ast.Call, name: str | None) -> tuple[str, ...]:
        """Return the parameters of a function of the project by its qualified name."""
        project = self.site.work.project
        if name in project.functions:
            arguments = project.functions[name][1].args
            return tuple(parameter.arg for parameter in [*arguments.posonlyargs, *arguments.args])
        made, method = class_called(project, name) if name else None, "__init__"
        if made is None and isinstance(call.func, ast.Attribute):
            kind = self.site.values.kind(call.func.value) or ""
            made, method = kind.removeprefix(OBJECT) if kind.startswith(OBJECT) else None, call.func.attr
        owner = owner_of(project, made, method) if made else None
        return project.classes[owner].methods[method] if owner else ()

    # ---- following it back

    def trace(self, node: ast.AST | None) -> None:
        """Follow an expression that is a device back to the texts that it may be."""
        if node is None or node in self.asked:
            return
        self.asked.add(node)
        literal = head(node)
        if literal is not None:
            self.found[literal] = None
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
            self.trace_all(node)
        elif isinstance(node, ast.Attribute | ast.Subscript):
            self.trace_stored(node)
        elif isinstance(node, ast.Call):
            self.trace_call(node)

    def trace_name(self, node: ast.Name) -> None:
        """Follow a name that holds a device to all that is bound to it."""
        names = self.site.work.names
        scope = names.scope_of(node)
        while node.id not in scope.bound and scope.outer is not None:
            scope = scope.elsewhere.get(node.id, scope.outer)
        self.names.add((id(scope), node.id))
        for what in scope.bound.get(node.id, []):
            if isinstance(what, ast.expr):
                self.trace(what)
        for gone_through in self.looped.get(node.id, []):
            if self.site.source.function(gone_through) is self.site.source.function(node):
                part = isinstance(gone_through, ast.Subscript) and isinstance(gone_through.slice, ast.Slice)
                self.trace_all(self.site.values.origin(gone_through.value if part else gone_through))  # type: ignore[attr-defined]
        if isinstance(scope.node, Definition):
            self.trace_parameter(scope.node, node.id)

    def trace_parameter(self, definition: Definition, parameter: str) -> None:
        """Follow a parameter that holds a device to its default and to what callers in this file pass."""
        self.trace(default_of(definition, parameter))
        own = f"{self.site.work.names.own}.{getattr(definition, 'name', '')}"
        entries = [param.arg for param in [*definition.args.posonlyargs, *definition.args.args]]
        for call in self.site.work.index.calls.get(own, []):
            given = dict(zip(entries, call.args, strict=False)) | {
                keyword.arg: keyword.value for keyword in call.keywords if keyword.arg
            }
            self.trace(given.get(parameter))

    def trace_all(self, table: ast.AST) -> None:
        """`["cpu", "cuda"]`, `{"encoder": "cuda:0"}`: every entry, if all look like devices."""
        values = entries(table)
        if values and all(self.looks_like_device(value) for value in values):
            for value in values:
                self.trace(value)

    def looks_like_device(self, value: ast.expr) -> bool:
        """Return True for torch.device(…), a text of a CUDA device, or another device, in all branches."""
        if isinstance(value, ast.IfExp):
            return self.looks_like_device(value.body) and self.looks_like_device(value.orelse)
        made = isinstance(value, ast.Call) and self.site.qualified(value.func) == "torch.device"
        return made or head(value) is not None or is_other_device(value)

    def trace_stored(self, node: ast.Attribute | ast.Subscript) -> None:
        """Follow an attribute or an entry to what is assigned to it."""
        if isinstance(node, ast.Subscript):
            for table in (self.site.values.origin(node.value), *self.stored.get(ast.unparse(node.value), [])):
                self.trace_all(table)
        for value in self.stored.get(ast.unparse(node), []):
            self.trace(value)
        key = node.attr if isinstance(node, ast.Attribute) else node.slice
        self.trace_key(key.value if isinstance(key, ast.Constant) else key)

    def trace_key(self, key: object) -> None:
        """Follow a key of a dictionary to the values that are written for it."""
        if isinstance(key, str):
            self.attributes.add(key)
            for value in self.keyed.get(key, []):
                if head(value) is not None or isinstance(value, ast.IfExp):
                    self.trace(value)

    def trace_call(self, node: ast.Call) -> None:
        """Follow a call that returns a device: torch.device, str, a default, a function of this file."""
        name = self.site.qualified(node.func)
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if name in ("torch.device", "os.getenv", "os.environ.get") or is_builtin(node.func, "str"):
            position = 1 if name and name.startswith("os.") else 0
            self.trace(node.args[position] if len(node.args) > position else None)
        elif is_builtin(node.func, "getattr") or method in ("get", "setdefault", "pop"):
            key = node.args[-2] if len(node.args) > 1 else None
            self.trace(node.args[-1] if key is not None else None)
            key = key or (node.args[0] if node.args else None)
            self.trace_key(key.value if isinstance(key, ast.Constant) else None)
        elif name is not None and name.rpartition(".")[2] in ("field", "Field", "Option", "Argument"):
            self.trace(node.args[0] if node.args else None)
            for keyword in node.keywords:
                self.trace(keyword.value if keyword.arg == "default" else None)
        elif name is not None:
            self.trace_returns(name)

    def trace_returns(self, name: str) -> None:
        """Follow a top-level function of this file that returns a device to its return statements."""
        module = self.site.work.names.own
        for node in self.site.source.tree.body:
            if isinstance(node, ast.FunctionDef) and f"{module}.{node.name}" == name:
                for statement in returns_of(self.site.work.names, node):
                    self.trace(statement.value)

    # ---- asking

    def is_device(self, node: ast.AST) -> bool:
        """Return True if an expression in a comparison is a device, its type or its text."""
        if isinstance(node, ast.Attribute):
            if node.attr == "type":
                return self.is_device(node.value)
            return device_like(node.attr) or node.attr in self.attributes
        if isinstance(node, ast.NamedExpr):
            return self.is_device(node.value) or self.is_device(node.target)
        if isinstance(node, ast.Name):
            return device_like(node.id) or self.holds_device(node) or self.site.values.kind(node) == "torch_device"
        if isinstance(node, ast.Subscript):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if isinstance(key, str):
                return device_like(key) or key in self.attributes
            return self.is_device(node.value)
        return isinstance(node, ast.Call) and self.is_device_call(node)

    def is_device_call(self, node: ast.Call) -> bool:
        """Return True for a call that gives a device or its text."""
        if is_builtin(node.func, "str") and node.args:
            return self.is_device(node.args[0])
        if is_builtin(node.func, "getattr") and len(node.args) > 1:
            return isinstance(node.args[1], ast.Constant) and device_like(str(node.args[1].value))
        if self.site.qualified(node.func) == "torch.device":
            return True
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("split", "partition", "lower", "strip"):
            return self.is_device(node.func.value)
        return False

    def holds_device(self, node: ast.Name) -> bool:
        """Return True for a name that is known to hold a device."""
        scope = self.site.work.names.scope_of(node)
        while node.id not in scope.bound and scope.outer is not None:
            scope = scope.elsewhere.get(node.id, scope.outer)
        return (id(scope), node.id) in self.names


def entries(table: ast.AST) -> list[ast.expr]:
    """Return the entries of a list or a dictionary as written; none if a key is a CUDA device (map_location={…})."""
    if isinstance(table, ast.List | ast.Tuple):
        return table.elts
    if isinstance(table, ast.ListComp | ast.DictComp):
        return [table.value if isinstance(table, ast.DictComp) else table.elt]
    if isinstance(table, ast.Call) and is_builtin(table.func, "dict") and not table.args:
        return [keyword.value for keyword in table.keywords]
    keyed = isinstance(table, ast.Dict) and not any(head(key) is not None for key in table.keys)
    return table.values if isinstance(table, ast.Dict) and keyed else []


def is_other_device(value: ast.AST) -> bool:
    """Return True for the text of a device other than a CUDA card: the CPU, mps, meta, disk or xpu."""
    text = value.value if isinstance(value, ast.Constant) else None
    return isinstance(text, str) and text.partition(":")[0] in ("cpu", "mps", "meta", "disk", "xpu")


def is_builtin(node: ast.AST, name: str) -> bool:
    """Return True for a plain name such as `str` or `getattr`."""
    return isinstance(node, ast.Name) and node.id == name


@answer_once
def find_devices(site: Site) -> Devices:
    """Return the devices of the file, looked for once for a text."""
    return Devices(site)


def root_of(site: Site, node: ast.AST) -> str | None:
    """Return the qualified name at the beginning of a chain of calls and attributes."""
    while isinstance(node, ast.Call | ast.Attribute | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return site.qualified(node)


def is_card(value: ast.expr, device: str) -> bool:
    """Return True for a text that names the card, with or without a number."""
    text = value.value if isinstance(value, ast.Constant) else None
    return isinstance(text, str) and text.partition(":")[0] == device


def report_possible_device(site: Site, node: ast.Constant, device: str, devices: Devices) -> None:
    """Report a text that may be a device, only where a value is set: messages have the word too."""
    if ("left", node.lineno) in site.work.seen or site.source.in_f_string(node):
        return
    parent = site.source.parents[node]
    if isinstance(parent, ast.Dict):
        keys = [key for key, value in zip(parent.keys, parent.values, strict=True) if value is node]
        reported = any(isinstance(key, ast.Constant) and device_like(str(key.value)) for key in keys)
        reported = reported or (
            bool(keys) and any(value in devices.found or is_card(value, device) for value in parent.values)
        )
    else:
        if isinstance(parent, ast.IfExp):
            parent = site.source.parents[parent]
        reported = isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr | ast.arguments)
    if reported:
        site.work.seen[("left", node.lineno)] = None
        site.manual(
            f"{node.value!r} was not found to be used as a device and is unchanged; if it is one, write {device}",
            zh=f"未能确认 {node.value!r} 被用作设备,保持不变;若是设备,请改为 {device}",
            risk="low",
            node=node,
        )
