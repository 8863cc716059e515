"""Flow of Horovod's module through a project: parameters, attributes, results and files that pass it on as a value.

`import horovod.tensorflow as hvd` is often handed to the function that builds the model, or kept on an object. What
surely holds the module is an alias, and names resolve through it: `self.hvd.rank()` is `horovod.tensorflow.rank`. Where
the module goes to something that is not followed is an escape; a program with one is not migrated in part.

Keys of aliases: `module.name`, `module.function(parameter)`, `module.Class.method(parameter)`, `module.function()` for
a result, `module.Class.attribute` and, for other objects, `.attribute`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from viaduct.migration.names import Names, all_arguments
from viaduct.migration.predicates import is_none
from viaduct.migration.project import Project
from viaduct.migration.source import Source

ROOTS = ("horovod.tensorflow", "horovod.keras", "horovod.tensorflow.keras")
CONVERTED = {
    *("init", "shutdown", "rank", "size", "local_rank", "local_size", "DistributedOptimizer", "callbacks", "keras"),
    *("BroadcastGlobalVariablesHook", "callbacks.BroadcastGlobalVariablesCallback", "broadcast_global_variables"),
    *("broadcast_variables", "allreduce", "allgather", "broadcast", "Average", "Sum", "Min", "Max", "Product"),
}
"""What has its like on the device, or goes together with a call that has."""
ROUNDS = 6
"""So many hands the module may go through."""
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
SAME_OR_NOT = (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)
DECIDING = (ast.If, ast.IfExp, ast.While, ast.Assert)


def note_module_flow(project: Project, files: dict[str, Names]) -> None:
    """Fill `project.aliases` and `project.escapes`."""
    if not any("horovod" in names.source.text for names in files.values()):
        return
    flow = Flow(project, files)
    for _ in range(ROUNDS):
        before = len(project.aliases)
        project.escapes.clear()
        for path, names in flow.concerned_files().items():
            names.aliases = project.aliases
            names.resolved.clear()  # what was unknown may be an alias by now
            flow.follow_file(path, names)
        if len(project.aliases) == before:
            break
    flow.drop_mixed()
    concerned = flow.concerned_files()
    project.alias_files |= {*concerned}
    for path, names in concerned.items():
        if any(has_no_like(names, node) for node in names.source.nodes):
            project.horovod_kept.add(path)


def has_no_like(names: Names, node: ast.AST) -> bool:
    """Something of Horovod that stays as it is, because the device's communication has nothing like it."""
    if not isinstance(node, ast.Name | ast.Attribute) or isinstance(names.source.parents.get(node), ast.Attribute):
        return False
    name = names.qualified(node) or ""
    root = next((root for root in sorted(ROOTS, key=len, reverse=True) if name.startswith(f"{root}.")), None)
    short = name[len(root) + 1 :] if root else ""
    return bool(short) and short not in CONVERTED and not short.startswith("Compression")


class Flow:
    """Functions and methods of a project, and what is passed to them."""

    def __init__(self, project: Project, files: dict[str, Names]) -> None:
        self.project, self.files = project, files
        self.functions: dict[str, tuple[Names, FunctionNode]] = {}
        self.methods: dict[str, list[str]] = {}
        for names in files.values():
            for node in names.source.tree.body:
                if isinstance(node, FunctionNode):
                    self.functions[f"{names.own}.{node.name}"] = (names, node)
                elif isinstance(node, ast.ClassDef):
                    for method in node.body:
                        if isinstance(method, FunctionNode):
                            qualified = f"{names.own}.{node.name}.{method.name}"
                            self.functions[qualified] = (names, method)
                            self.methods.setdefault(method.name, []).append(qualified)

    def concerned_files(self) -> dict[str, Names]:
        """Files that hold Horovod's name, or that of something which holds its module."""
        words = {re.split(r"[.(]", key.rstrip(")"))[-1] or key[:-2].rpartition(".")[2] for key in self.project.aliases}
        wanted = re.compile("|".join(sorted({"horovod", *(rf"\b{re.escape(text)}\b" for text in words if text)})))
        return {path: names for path, names in self.files.items() if wanted.search(names.source.text)}

    def follow_file(self, path: str, names: Names) -> None:
        """Follow Horovod's module through one file."""
        for name, bound in names.scopes[names.source.tree].bound.items():
            root = names.resolve(bound, name)
            if root in ROOTS:
                self.project.aliases[f"{names.own}.{name}"] = str(root)
        for node in names.source.nodes:
            root = self.root_of(names, node)
            if root is None:
                continue
            key = self.destination(names, node)
            if key is None:
                self.project.escapes.setdefault(path, set()).add(getattr(node, "lineno", 1))
            elif key:
                self.project.aliases[key] = root
                if key.startswith(f"{names.own}.") and is_attribute_key(key, names):
                    self.project.aliases.setdefault(f".{key.rpartition('.')[2]}", root)

    def root_of(self, names: Names, node: ast.AST) -> str | None:
        """Return the root if the node is the module itself as a value, not the start of a dotted name or a call."""
        if not isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.IfExp):
            return None
        if isinstance(node, ast.Name | ast.Attribute) and not isinstance(node.ctx, ast.Load):
            return None
        parent = names.source.parents.get(node)
        if isinstance(parent, ast.Attribute) or (isinstance(parent, ast.Call) and parent.func is node):
            return None
        root = names.qualified(node)
        return root if root in ROOTS else None

    def destination(self, names: Names, node: ast.AST) -> str | None:
        """Return the key of what gets the value; empty where nobody keeps it; None where it is not followed."""
        parent = names.source.parents[node]
        keyword = parent if isinstance(parent, ast.keyword) else None
        parent = names.source.parents[parent] if keyword is not None else parent
        if isinstance(parent, ast.Expr) or is_question(names.source, node):
            return ""
        if isinstance(parent, ast.IfExp) and self.root_of(names, parent) is not None:
            return ""  # followed as a whole
        if isinstance(parent, ast.Assign | ast.AnnAssign):
            return self.kept_as(names, parent)
        if isinstance(parent, ast.Return):
            return self.returned_by(names, parent)
        if isinstance(parent, ast.Call):
            return self.passed_to(names, parent, keyword, node)
        return default_of(names, parent, node) if isinstance(parent, ast.arguments) else None

    @staticmethod
    def kept_as(names: Names, statement: ast.Assign | ast.AnnAssign) -> str | None:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        target = targets[0]
        if len(targets) != 1:
            return None
        if isinstance(target, ast.Name):
            scope = names.scope_of(target)
            shared = isinstance(scope.node, ast.Module) or target.id in scope.elsewhere
            return f"{names.own}.{target.id}" if shared else ""
        if not isinstance(target, ast.Attribute):
            return None
        owner = class_around(names, target) if is_self(target.value) else None
        return f"{names.own}.{owner.name}.{target.attr}" if owner else f".{target.attr}"

    def returned_by(self, names: Names, statement: ast.Return) -> str | None:
        """Return the key of the function that a statement returns from; None if it is not followed."""
        function = names.source.function(statement)
        name = function_name(names, function) if function is not None else ""
        return f"{name}()" if name in self.functions else None

    def passed_to(self, names: Names, call: ast.Call, keyword: ast.keyword | None, value: ast.AST) -> str | None:
        """Return the key of the parameter that gets it."""
        name = self.callee(names, call)
        if name is None:
            return None
        parameters = self.parameters(name)
        if keyword is not None:
            return f"{name}({keyword.arg})" if keyword.arg in {*parameters} else None
        position = next((index for index, item in enumerate(call.args) if item is value), len(parameters))
        starred = any(isinstance(argument, ast.Starred) for argument in call.args[: position + 1])
        return None if starred or position >= len(parameters) else f"{name}({parameters[position]})"

    def parameters(self, name: str) -> list[str]:
        """Return the names of a function's parameters."""
        arguments = self.functions[name][1].args
        found = [parameter.arg for parameter in [*arguments.posonlyargs, *arguments.args]]
        static = any(
            getattr(decorator, "id", "") == "staticmethod" for decorator in self.functions[name][1].decorator_list
        )
        in_class = not isinstance(self.functions[name][0].source.parents[self.functions[name][1]], ast.Module)
        return [*found[in_class and not static :], *(param.arg for param in arguments.kwonlyargs)]

    def callee(self, names: Names, call: ast.Call) -> str | None:
        """Return the project's function or method that a call goes to."""
        name = names.qualified(call.func)
        for candidate in (name, f"{name}.__init__"):
            if candidate in self.functions:
                return candidate
        if name is not None or not isinstance(call.func, ast.Attribute):
            return None
        receiver, method = call.func.value, call.func.attr
        owner = class_around(names, call)
        if is_self(receiver) and owner and f"{names.own}.{owner.name}.{method}" in self.functions:
            return f"{names.own}.{owner.name}.{method}"
        if isinstance(receiver, ast.Call) and getattr(receiver.func, "id", "") == "super" and owner:
            bases = [f"{names.qualified(base)}.{method}" for base in owner.bases]
            return next((base for base in bases if base in self.functions), None)
        known = self.methods.get(method, [])
        return known[0] if len(known) == 1 else None

    def drop_mixed(self) -> None:
        """Drop aliases that are at times given something else; what gave them the module is an escape."""
        mixed = {*self.given_otherwise(), *self.kept_otherwise()}
        for key in mixed:
            self.project.aliases.pop(key, None)
        concerned = self.concerned_files()
        for names in concerned.values():
            names.resolved.clear()
        if mixed:
            self.project.escapes.clear()
            for path, names in concerned.items():
                for node in names.source.nodes:
                    if self.root_of(names, node) is not None:
                        goal = self.destination(names, node)
                        if goal is None or goal in mixed:
                            self.project.escapes.setdefault(path, set()).add(getattr(node, "lineno", 1))
                    elif self.is_lost(names, node, mixed):
                        self.project.escapes.setdefault(path, set()).add(getattr(node, "lineno", 1))

    @staticmethod
    def is_lost(names: Names, node: ast.AST, mixed: set[str]) -> bool:
        """`trainer.comm.rank()`, where `comm` is the module in one class and something else in another."""
        if not isinstance(node, ast.Attribute) or node.attr not in CONVERTED:
            return False
        held = node.value
        of_other = isinstance(held, ast.Attribute) and f".{held.attr}" in mixed and not is_self(held.value)
        return of_other and names.qualified(node) is None

    def kept_otherwise(self) -> Iterator[str]:
        """Attributes to which another object's class assigns something else."""
        attributes = {key for key in self.project.aliases if key.startswith(".")}
        for names in self.concerned_files().values() if attributes else ():
            for node in names.source.nodes:
                if not isinstance(node, ast.Assign) or len(node.targets) != 1 or is_none(node.value):
                    continue
                target = node.targets[0]
                known = isinstance(target, ast.Attribute) and f".{target.attr}" in attributes
                if isinstance(target, ast.Attribute) and known and names.qualified(node.value) not in ROOTS:
                    yield f".{target.attr}"

    def given_otherwise(self) -> Iterator[str]:
        wanted = {key.partition("(")[0] for key in self.project.aliases if key.endswith(")") and "()" not in key}
        if not wanted:
            return
        called = re.compile("|".join(sorted(rf"\b{re.escape(called_as(name))}\b" for name in wanted)))
        for names in self.files.values():
            for node in names.source.nodes if called.search(names.source.text) else ():
                name = self.callee(names, node) if isinstance(node, ast.Call) else None
                if name not in wanted or not isinstance(node, ast.Call):
                    continue
                for argument in [*node.args, *node.keywords]:
                    text = argument if isinstance(argument, ast.keyword) else None
                    value = text.value if text is not None else argument
                    key = self.passed_to(names, node, text, value)
                    is_none = isinstance(value, ast.Constant) and not value.value
                    if key in self.project.aliases and not is_none and names.qualified(value) not in ROOTS:
                        yield str(key)


def called_as(function: str) -> str:
    """The word by which a function is called; of `__init__` the class."""
    parts = function.split(".")
    return parts[-2] if parts[-1] == "__init__" and len(parts) > 1 else parts[-1]


def is_question(source: Source, node: ast.AST) -> bool:
    """Return True if only the presence of a module is asked: `hvd is None`, `if not hvd`."""
    parent = source.parents[node]
    if isinstance(parent, ast.Compare):
        sides = [parent.left, *parent.comparators]
        other = next((side for side in sides if side is not node), None)
        return len(sides) == 2 and isinstance(parent.ops[0], SAME_OR_NOT) and is_none(other)
    return is_decided_by(source, node)


def is_decided_by(source: Source, node: ast.AST) -> bool:
    """Return True if nobody gets to see more of it than its truth: `x = hvd or other` would hand it on."""
    parent = source.parents[node]
    if isinstance(parent, DECIDING):
        return parent.test is node
    if isinstance(parent, ast.UnaryOp):
        return isinstance(parent.op, ast.Not)
    if isinstance(parent, ast.Call):
        return parent.args == [node] and isinstance(parent.func, ast.Name) and parent.func.id == "bool"
    if isinstance(parent, ast.comprehension):
        return node in parent.ifs
    if not isinstance(parent, ast.BoolOp):
        return False
    hidden = isinstance(parent.op, ast.And) and parent.values[-1] is not node
    return hidden or is_decided_by(source, parent)


def is_dotted(node: ast.AST) -> bool:
    """Return True for names joined by dots."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def is_self(node: ast.AST) -> bool:
    """Return True for the name `self`."""
    return isinstance(node, ast.Name) and node.id == "self"


def is_attribute_key(key: str, names: Names) -> bool:
    """`module.Class.attribute`."""
    return "(" not in key and key.removeprefix(f"{names.own}.").count(".") == 1


def class_around(names: Names, node: ast.AST) -> ast.ClassDef | None:
    """Return the class around a node."""
    return next((parent for parent in names.source.ancestors(node) if isinstance(parent, ast.ClassDef)), None)


def function_name(names: Names, function: FunctionNode) -> str:
    """Return the qualified name of a function or method."""
    owner = names.source.parents.get(function)
    home = f"{names.own}.{owner.name}" if isinstance(owner, ast.ClassDef) else names.own
    return f"{home}.{function.name}"


def default_of(names: Names, arguments: ast.arguments, value: ast.AST) -> str | None:
    """Return the key of the parameter whose default it is."""
    function = names.source.parents[arguments]
    if not isinstance(function, FunctionNode):
        return None
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    parameter = next((pair.arg for pair, default in pairs if default is value), None)
    return f"{function_name(names, function)}({parameter})" if parameter else None


def resolve_alias(names: Names, node: ast.AST) -> str | None:
    """Return the module that a parameter, an attribute or a result stands for."""
    aliases = names.aliases
    if isinstance(node, ast.Attribute):
        owner = class_around(names, node) if is_self(node.value) else None
        own = aliases.get(f"{names.own}.{owner.name}.{node.attr}") if owner else None
        return own or aliases.get(f".{node.attr}")  # of another object, or inherited
    if isinstance(node, ast.Call):
        if not is_dotted(node.func):
            return None
        name = names.qualified(node.func)
        owner = class_around(names, node)
        if name is None and isinstance(node.func, ast.Attribute) and is_self(node.func.value) and owner:
            name = f"{names.own}.{owner.name}.{node.func.attr}"
        return aliases.get(f"{name}()") if name else None
    if isinstance(node, ast.IfExp):
        found = {names.qualified(branch) for branch in (node.body, node.orelse) if not is_none(branch)}
        root = found.pop() if len(found) == 1 else None
        return root if root in ROOTS else None
    if not isinstance(node, ast.Name):
        return None
    scope = names.scope_of(node)
    while scope is not None and node.id not in scope.bound:
        if scope.outer is None:
            return None
        scope = scope.outer
    function = scope.node
    if not isinstance(function, FunctionNode) or node.id not in {
        parameter.arg for parameter in all_arguments(function.args)
    }:
        return None
    if len(scope.bound[node.id]) > 1:
        return None  # bound again within
    return aliases.get(f"{function_name(names, function)}({node.id})")
