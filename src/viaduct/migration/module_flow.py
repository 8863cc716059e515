"""Flow of Horovod's module through a project: parameters, attributes, results and files that pass it on as a value.

After `import horovod.tensorflow as hvd` the module is often passed to the function that builds the model, or kept on an
object. What surely holds the module is called an alias, and names resolve through it: `self.hvd.rank()` is
`horovod.tensorflow.rank`. A line that passes the module on to code that is not followed is called an escape: rules for
Horovod leave a program with an escape as it is.

`project.aliases` has key -> the module's name. Keys: `module.name`, `module.function(parameter)`,
`module.Class.method(parameter)`, `module.function()` for a result, `module.Class.attribute`, and `.attribute` for an
attribute of any other object.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from viaduct.migration.names import Names, all_arguments
from viaduct.migration.predicates import is_none, is_self
from viaduct.migration.project import Project
from viaduct.migration.source import Source

HOROVOD_MODULES = ("horovod.tensorflow", "horovod.keras", "horovod.tensorflow.keras")
CONVERTED_MEMBERS = {
    *("init", "shutdown", "rank", "size", "local_rank", "local_size", "DistributedOptimizer", "callbacks", "keras"),
    *("BroadcastGlobalVariablesHook", "callbacks.BroadcastGlobalVariablesCallback", "broadcast_global_variables"),
    *("broadcast_variables", "allreduce", "allgather", "broadcast", "Average", "Sum", "Min", "Max", "Product"),
}
"""Members of Horovod that rules convert, or remove together with a call that they convert."""
ROUNDS = 6
"""Largest number of passes over the concerned files; each uses the aliases that the passes before have found."""
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def note_module_flow(project: Project, files: dict[str, Names]) -> None:
    """Fill `project.aliases`, `alias_files`, `escapes` and `horovod_kept`."""
    if not any("horovod" in names.source.text for names in files.values()):
        return
    flow = ModuleFlow(project, files)
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
        if any(is_unconverted(names, node) for node in names.source.nodes):
            project.horovod_kept.add(path)


def is_unconverted(names: Names, node: ast.AST) -> bool:
    """Return True for a use of a member of Horovod that no rule converts: the device's communication lacks it."""
    if not isinstance(node, ast.Name | ast.Attribute) or isinstance(names.source.parents.get(node), ast.Attribute):
        return False
    name = names.qualified(node) or ""
    root = next((root for root in sorted(HOROVOD_MODULES, key=len, reverse=True) if name.startswith(f"{root}.")), None)
    member = name[len(root) + 1 :] if root else ""
    return bool(member) and member not in CONVERTED_MEMBERS and not member.startswith("Compression")


class ModuleFlow:
    """Functions and methods of a project, and what is passed to them."""

    def __init__(self, project: Project, files: dict[str, Names]) -> None:
        self.project, self.files = project, files
        self.functions: dict[str, tuple[Names, FunctionNode]] = {}  # qualified name -> file's names, definition
        self.methods: dict[str, list[str]] = {}  # name of a method -> qualified names of all methods of that name
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
        """Return the files whose text contains Horovod's name, or the last name in the key of an alias."""
        words = {re.findall(r"\w+", key)[-1] for key in self.project.aliases}
        wanted = re.compile("|".join(sorted({"horovod", *(rf"\b{re.escape(word)}\b" for word in words)})))
        return {path: names for path, names in self.files.items() if wanted.search(names.source.text)}

    def note_escape(self, path: str, node: ast.AST) -> None:
        """Record the line of a node at which the module is not followed further."""
        self.project.escapes.setdefault(path, set()).add(getattr(node, "lineno", 1))

    def follow_file(self, path: str, names: Names) -> None:
        """Follow Horovod's module through one file."""
        for name, bound in names.scopes[names.source.tree].bound.items():
            root = names.resolve(bound, name)
            if root in HOROVOD_MODULES:
                self.project.aliases[f"{names.own}.{name}"] = str(root)
        for node in names.source.nodes:
            root = self.root_of(names, node)
            if root is None:
                continue
            key = self.destination(names, node)
            if key is None:
                self.note_escape(path, node)
            elif key:
                self.project.aliases[key] = root
                # `module.Class.attribute`: through other objects than self it is known by its name only.
                is_attribute = "(" not in key and key.removeprefix(f"{names.own}.").count(".") == 1
                if key.startswith(f"{names.own}.") and is_attribute:
                    self.project.aliases.setdefault(f".{key.rpartition('.')[2]}", root)

    def root_of(self, names: Names, node: ast.AST) -> str | None:
        """Return the module of Horovod that a node is as a value; None if it begins a dotted name, and for all else."""
        if not isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.IfExp):
            return None
        if isinstance(node, ast.Name | ast.Attribute) and not isinstance(node.ctx, ast.Load):
            return None
        parent = names.source.parents.get(node)
        if isinstance(parent, ast.Attribute) or (isinstance(parent, ast.Call) and parent.func is node):
            return None
        root = names.qualified(node)
        return root if root in HOROVOD_MODULES else None

    def destination(self, names: Names, node: ast.AST) -> str | None:
        """Return the key of what a node's value goes to; None if it is not followed there; "" if no alias is needed."""
        parent = names.source.parents[node]
        keyword = parent if isinstance(parent, ast.keyword) else None
        parent = names.source.parents[parent] if keyword is not None else parent
        if isinstance(parent, ast.Expr) or is_only_tested(names.source, node):
            return ""  # unused, or only tested
        if isinstance(parent, ast.IfExp) and self.root_of(names, parent) is not None:
            return ""  # the conditional expression is followed itself
        if isinstance(parent, ast.Assign | ast.AnnAssign):
            return key_of_target(names, parent)
        if isinstance(parent, ast.Return):
            function = names.source.function(parent)
            name = function_name(names, function) if function is not None else ""
            return f"{name}()" if name in self.functions else None
        if isinstance(parent, ast.Call):
            return self.key_of_parameter(names, parent, keyword, node)
        return key_of_default(names, parent, node) if isinstance(parent, ast.arguments) else None

    def key_of_parameter(self, names: Names, call: ast.Call, keyword: ast.keyword | None, value: ast.AST) -> str | None:
        """Return the key of the parameter that gets an argument, by `keyword` or as `value`; None if unknown."""
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
        """Return the names of a function's parameters, without `self`."""
        names, function = self.functions[name]
        positional = [parameter.arg for parameter in [*function.args.posonlyargs, *function.args.args]]
        static = any(getattr(decorator, "id", "") == "staticmethod" for decorator in function.decorator_list)
        has_self = not static and not isinstance(names.source.parents[function], ast.Module)
        return [*positional[has_self:], *(parameter.arg for parameter in function.args.kwonlyargs)]

    def callee(self, names: Names, call: ast.Call) -> str | None:
        """Return the name of the project's function or method that a call runs; None if it is not known."""
        name = names.qualified(call.func)
        for candidate in (name, f"{name}.__init__"):
            if candidate in self.functions:
                return candidate
        if name is not None or not isinstance(call.func, ast.Attribute):
            return None
        receiver, method = call.func.value, call.func.attr
        owner = names.source.class_around(call)
        if is_self(receiver) and owner and f"{names.own}.{owner.name}.{method}" in self.functions:
            return f"{names.own}.{owner.name}.{method}"
        if isinstance(receiver, ast.Call) and getattr(receiver.func, "id", "") == "super" and owner:
            bases = [f"{names.qualified(base)}.{method}" for base in owner.bases]
            return next((base for base in bases if base in self.functions), None)
        known = self.methods.get(method, [])
        return known[0] if len(known) == 1 else None

    def drop_mixed(self) -> None:
        """Drop aliases that are also given another value somewhere; lines that give them the module become escapes."""
        mixed = {*self.find_mixed_parameters(), *self.find_mixed_attributes()}
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
                        destination = self.destination(names, node)
                        if destination is None or destination in mixed:
                            self.note_escape(path, node)
                    elif is_member_of_mixed(names, node, mixed):
                        self.note_escape(path, node)

    def find_mixed_attributes(self) -> Iterator[str]:
        """Yield the keys `.attribute` of aliases to which something else is assigned too."""
        attributes = {key for key in self.project.aliases if key.startswith(".")}
        for names in self.concerned_files().values() if attributes else ():
            for node in names.source.of_kind(ast.Assign):
                key = f".{getattr(node.targets[0], 'attr', '')}"
                is_alias = len(node.targets) == 1 and key in attributes
                if is_alias and not is_none(node.value) and names.qualified(node.value) not in HOROVOD_MODULES:
                    yield key

    def find_mixed_parameters(self) -> Iterator[str]:
        """Yield the keys of aliases that are parameters to which a call passes anything else but a false constant."""
        wanted = {key.partition("(")[0] for key in self.project.aliases if key.endswith(")") and "()" not in key}
        if not wanted:
            return
        words = re.compile("|".join(sorted(rf"\b{re.escape(word_for_call(name))}\b" for name in wanted)))
        for names in self.files.values():
            for call in names.source.of_kind(ast.Call) if words.search(names.source.text) else ():
                for argument in [*call.args, *call.keywords] if self.callee(names, call) in wanted else ():
                    keyword = argument if isinstance(argument, ast.keyword) else None
                    value = keyword.value if keyword is not None else argument
                    key = self.key_of_parameter(names, call, keyword, value)
                    is_false = isinstance(value, ast.Constant) and not value.value
                    if key in self.project.aliases and not is_false and names.qualified(value) not in HOROVOD_MODULES:
                        yield str(key)


def is_member_of_mixed(names: Names, node: ast.AST, mixed: set[str]) -> bool:
    """Return True for `trainer.comm.rank`, where `comm` is the module in one class and something else in another."""
    if (
        not isinstance(node, ast.Attribute)
        or node.attr not in CONVERTED_MEMBERS
        or not isinstance(node.value, ast.Attribute)
    ):
        return False
    is_mixed = f".{node.value.attr}" in mixed and not is_self(node.value.value)
    return is_mixed and names.qualified(node) is None


def word_for_call(function: str) -> str:
    """Return the word by which a function is called; of `__init__` the class."""
    parts = function.split(".")
    return parts[-2] if parts[-1] == "__init__" and len(parts) > 1 else parts[-1]


def key_of_target(names: Names, statement: ast.Assign | ast.AnnAssign) -> str | None:
    """Return the key of what an assignment binds: empty for a local variable, None if it is not followed."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    target = targets[0]
    if len(targets) != 1 or not isinstance(target, ast.Name | ast.Attribute):
        return None
    if isinstance(target, ast.Name):
        scope = names.scope_of(target)
        declared_outside = target.id in scope.elsewhere  # global or nonlocal
        is_of_module = isinstance(scope.node, ast.Module) or declared_outside
        return f"{names.own}.{target.id}" if is_of_module else ""
    owner = names.source.class_around(target) if is_self(target.value) else None
    return f"{names.own}.{owner.name}.{target.attr}" if owner else f".{target.attr}"


def is_only_tested(source: Source, node: ast.AST) -> bool:
    """Return True if code only tests whether a value is there: `hvd is None`, `if not hvd`."""
    parent = source.parents[node]
    if isinstance(parent, ast.Compare):
        sides = [parent.left, *parent.comparators]
        other = next((side for side in sides if side is not node), None)
        return len(sides) == 2 and isinstance(parent.ops[0], ast.Is | ast.IsNot | ast.Eq | ast.NotEq) and is_none(other)
    return is_condition(source, node)


def is_condition(source: Source, node: ast.AST) -> bool:
    """Return True if only the truth of a value is used; `x = hvd or other` uses the value itself."""
    parent = source.parents[node]
    if isinstance(parent, ast.If | ast.IfExp | ast.While | ast.Assert):
        return parent.test is node
    if isinstance(parent, ast.UnaryOp):
        return isinstance(parent.op, ast.Not)
    if isinstance(parent, ast.Call):
        return parent.args == [node] and isinstance(parent.func, ast.Name) and parent.func.id == "bool"
    if isinstance(parent, ast.comprehension):
        return node in parent.ifs
    if not isinstance(parent, ast.BoolOp):
        return False
    # `hvd and x` is x, since the module is true.
    is_dropped = isinstance(parent.op, ast.And) and parent.values[-1] is not node
    return is_dropped or is_condition(source, parent)


def is_dotted(node: ast.AST) -> bool:
    """Return True for a plain name or names joined by dots."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def function_name(names: Names, function: FunctionNode) -> str:
    """Return the qualified name of a function or method."""
    owner = names.source.parents.get(function)
    home = f"{names.own}.{owner.name}" if isinstance(owner, ast.ClassDef) else names.own
    return f"{home}.{function.name}"


def key_of_default(names: Names, arguments: ast.arguments, value: ast.AST) -> str | None:
    """Return the key of the parameter whose default a value is; None for a lambda's."""
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
    """Return the module that a parameter, an attribute, a result or a conditional expression stands for; else None."""
    aliases = names.aliases
    if isinstance(node, ast.Attribute):
        owner = names.source.class_around(node) if is_self(node.value) else None
        own = aliases.get(f"{names.own}.{owner.name}.{node.attr}") if owner else None
        return own or aliases.get(f".{node.attr}")  # an attribute of another object, or an inherited one
    if isinstance(node, ast.Call):
        if not is_dotted(node.func):
            return None
        name = names.qualified(node.func)
        owner = names.source.class_around(node)
        if name is None and isinstance(node.func, ast.Attribute) and is_self(node.func.value) and owner:
            name = f"{names.own}.{owner.name}.{node.func.attr}"
        return aliases.get(f"{name}()") if name else None
    if isinstance(node, ast.IfExp):
        found = {names.qualified(branch) for branch in (node.body, node.orelse) if not is_none(branch)}
        root = found.pop() if len(found) == 1 else None
        return root if root in HOROVOD_MODULES else None
    if not isinstance(node, ast.Name):
        return None
    scope = names.scope_of(node)
    while scope is not None and node.id not in scope.bound:
        if scope.outer is None:
            return None
        scope = scope.outer
    function = scope.node
    if not isinstance(function, FunctionNode) or len(scope.bound[node.id]) > 1:  # no parameter, or bound again
        return None
    is_parameter = node.id in {parameter.arg for parameter in all_arguments(function.args)}
    return aliases.get(f"{function_name(names, function)}({node.id})") if is_parameter else None
