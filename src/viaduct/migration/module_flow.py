"""Follow Horovod's module through a project where code uses it as a value.

After `import horovod.tensorflow as hvd` the module may be passed to a function or stored on an object. A parameter,
attribute or result that certainly is the module is called an alias, and names resolve through it: `self.hvd.rank()` is
`horovod.tensorflow.rank`. A line that passes the module to code that is not followed is called an escape. Rules for
Horovod do not change a program with an escape.

`Project.horovod_aliases` has key -> the module's name. Keys: `module.name`, `module.function(parameter)`,
`module.Class.method(parameter)`, `module.function()` for a result, `module.Class.attribute`, and `.attribute` for an
attribute of any other object. Related classes share their attributes. An alias that is also assigned other values is
dropped (mixed_aliases.py), and the lines that assign the module to it are escapes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from viaduct.migration import mixed_aliases
from viaduct.migration.lookups import dotted_name
from viaduct.migration.names import Names, all_parameters, canonical_name
from viaduct.migration.predicates import is_none, is_self
from viaduct.migration.project import Project, parse_names
from viaduct.migration.project_calls import METHOD_KINDS, ProjectCalls, function_name
from viaduct.migration.source import FunctionNode, ImportNode, Source

HOROVOD_MODULES = ("horovod.tensorflow", "horovod.keras", "horovod.tensorflow.keras")
"""Qualified names of Horovod's module. Below, `root` is one of them."""
CONVERTED_MEMBERS = {
    "init", "shutdown", "rank", "size", "local_rank", "local_size", "DistributedOptimizer", "callbacks", "keras",
    "BroadcastGlobalVariablesHook", "callbacks.BroadcastGlobalVariablesCallback", "broadcast_global_variables",
    "broadcast_variables", "allreduce", "allgather", "broadcast", "Average", "Sum", "Min", "Max", "Product",
}  # fmt: skip
"""Members of Horovod that rules convert or remove."""
MEMBERS = {
    *CONVERTED_MEMBERS,
    "Adasum", "Compression", "DistributedGradientTape", "allgather_object", "alltoall", "broadcast_object",
    "cross_rank", "cross_size", "elastic", "gloo_built", "is_initialized", "join", "mpi_built", "nccl_built",
    "reducescatter", "start_timeline", "stop_timeline", "load_model", "mpi_threads_supported",
}  # fmt: skip
"""Members of Horovod; reading one of them from a value that may be the module counts as using the module."""


def record_module_flow(project: Project, files: dict[str, Names], plain: list[tuple[str, bytes]]) -> None:
    """Set `horovod_aliases`, `horovod_alias_files`, `horovod_escapes` and `unconverted_horovod_files` of the project.

    `plain`: (path, content) of the files that use no framework.
    """
    if not any("horovod" in names.source.text for names in files.values()):
        return
    flow = ModuleFlow(project, files, plain)
    flow.follow_files()
    followed = flow.find_relevant_files()
    dropped = mixed_aliases.drop_mixed_aliases(flow)
    for path, names in followed.items():
        lines = flow.find_escapes(names, dropped)
        project.horovod_escapes |= {path: lines} if lines else {}
    relevant = flow.find_relevant_files()
    project.horovod_alias_files |= {*relevant}
    for path, names in relevant.items():
        if any(is_unconverted(names, node) for node in names.source.nodes):
            project.unconverted_horovod_files.add(path)


def is_unconverted(names: Names, node: ast.AST) -> bool:
    """Return True for a use of a member of Horovod that no rule converts; Compression has rules of its own."""
    if not isinstance(node, ast.Name | ast.Attribute) or isinstance(names.source.parents.get(node), ast.Attribute):
        return False
    name = names.qualified(node) or ""
    root = next((root for root in sorted(HOROVOD_MODULES, key=len, reverse=True) if name.startswith(f"{root}.")), None)
    member = name[len(root) + 1 :] if root else ""
    return bool(member) and member not in CONVERTED_MEMBERS and not member.startswith("Compression")


class ModuleFlow:
    """Finds the aliases and escapes of Horovod's module in a project."""

    def __init__(self, project: Project, files: dict[str, Names], plain: list[tuple[str, bytes]]) -> None:
        self.project, self.files, self.plain = project, files, plain
        self.calls = ProjectCalls(project, files)

    def find_relevant_files(self) -> dict[str, Names]:
        """Return the files whose text contains `horovod` or the last name in an alias's key."""
        names_of_aliases = {re.findall(r"\w+", key)[-1] for key in self.project.horovod_aliases}
        pattern = re.compile("|".join(sorted({"horovod", *(rf"\b{re.escape(name)}\b" for name in names_of_aliases)})))
        return {path: file_names for path, file_names in self.files.items() if pattern.search(file_names.source.text)}

    def parse_plain_files(self, pattern: re.Pattern[str]) -> Iterator[Names]:
        """Yield the Names of each file without a framework whose text matches a pattern."""
        for path, data in self.plain:
            is_skipped = path in self.files or not pattern.search(data.decode(errors="replace"))
            names = None if is_skipped else parse_names(path, data)
            if names is not None:
                names.exports, names.horovod_aliases = self.project.exports, self.project.horovod_aliases
                yield names

    # ---- following the module

    def follow_files(self) -> None:
        """Find the aliases: repeat passes over the relevant files until a pass finds no new alias."""
        former_count = -1
        while former_count < len(self.project.horovod_aliases):
            former_count = len(self.project.horovod_aliases)
            for names in self.find_relevant_files().values():
                names.horovod_aliases = self.project.horovod_aliases
                names.resolved.clear()  # an unknown name may have become an alias
                self.follow_file(names)

    def follow_file(self, names: Names) -> None:
        """Follow Horovod's module through one file."""
        for scope in [*names.scopes.values()]:
            if isinstance(scope.node, ast.Module | ast.ClassDef):
                prefix = names.module if isinstance(scope.node, ast.Module) else f"{names.module}.{scope.node.name}"
                for name, bound in scope.bindings.items():
                    root = names.resolve(bound, name)
                    if root in HOROVOD_MODULES:
                        self.record_alias(f"{prefix}.{name}", str(root))
        for node in names.source.nodes:
            root = self.find_module_value(names, node)
            key = self.find_alias_key(names, node) if root is not None else None
            if root is not None and key:
                self.record_alias(key, root)

    def record_alias(self, key: str, root: str) -> None:
        """Record an alias; an attribute or result of a class also for its related classes."""
        owner, _, name = key.rpartition(".")
        is_shared = owner in self.calls.classes and not mixed_aliases.is_parameter_key(key)
        for relative in self.calls.find_family(owner) if is_shared else [owner]:
            self.project.horovod_aliases[f"{relative}.{name}"] = root
        if owner in self.calls.classes and not name.endswith(")"):
            self.project.horovod_aliases.setdefault(f".{name}", root)

    def is_module(self, names: Names, value: mixed_aliases.Value) -> bool:
        """Return True if a value is certainly Horovod's module."""
        if isinstance(value, ast.expr):
            return names.qualified(value) in HOROVOD_MODULES
        return value is not None and names.follow(value) in HOROVOD_MODULES

    # ---- where the module goes

    def find_module_value(self, names: Names, node: ast.AST) -> str | None:
        """Return the name of Horovod's module if a node has it as a value; None for a part of a longer name."""
        if not isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.IfExp):
            return None
        if isinstance(node, ast.Name | ast.Attribute) and not isinstance(node.ctx, ast.Load):
            return None
        parent = names.source.parents.get(node)
        if isinstance(parent, ast.Attribute) or (isinstance(parent, ast.Call) and parent.func is node):
            return None
        root = names.qualified(node)
        return root if root in HOROVOD_MODULES else None

    def find_alias_key(self, names: Names, node: ast.AST) -> str | None:
        """Return the key of the alias that gets the value of a node; "" if none does; None if it cannot be followed."""
        parent = names.source.parents[node]
        keyword = parent if isinstance(parent, ast.keyword) else None
        parent = names.source.parents[parent] if keyword is not None else parent
        if isinstance(parent, ast.Expr) or is_only_tested(names.source, node):
            return ""  # unused, or only tested
        if isinstance(parent, ast.IfExp) and self.find_module_value(names, parent) is not None:
            return ""  # the conditional expression is followed instead
        if isinstance(parent, ast.Assign | ast.AnnAssign):
            return find_key_of_target(names, parent)
        if isinstance(parent, ast.Return):
            return self.find_key_of_result(names, parent)
        if isinstance(parent, ast.Call):
            callees = self.calls.find_callees(names, parent)
            values = self.calls.find_passed_values(names, parent, callees[0]) if len(callees) == 1 else {}
            return self.find_key_of_parameter(callees[0], values, node) if values else None
        if isinstance(parent, ast.arguments):
            function = self.calls.find_function(names, names.source.parents[parent])
            return self.find_key_of_parameter(function, self.calls.find_defaults(function), node) if function else None
        return None

    def find_key_of_result(self, names: Names, statement: ast.Return) -> str | None:
        """Return the key of a function's result; None for nested and decorated functions, such as properties."""
        definition = names.source.function_around(statement)
        function = self.calls.find_function(names, definition) if definition is not None else None
        is_plain = function is not None and self.calls.list_decorators(function) <= {*METHOD_KINDS}
        return f"{function}()" if is_plain else None

    def find_key_of_parameter(self, function: str, values: Mapping[str, ast.expr | None], value: ast.AST) -> str | None:
        """Return the key of the parameter that gets a value; None if the function binds the parameter again."""
        parameter = next((name for name in values if values[name] is value), None)
        if parameter is None or self.calls.is_parameter_rebound(function, parameter):
            return None
        return f"{function}({parameter})"

    # ---- escapes

    def find_escapes(self, names: Names, dropped: set[str]) -> set[int]:
        """Return the lines of a file with an escape. `dropped`: keys of the aliases that were dropped as mixed."""
        results = {key for key in self.project.horovod_aliases if key.endswith("()")}
        escapes = (node for node in names.source.nodes if self.is_escape(names, node, dropped, results))
        return {getattr(node, "lineno", 1) for node in escapes}

    def is_escape(self, names: Names, node: ast.AST, dropped: set[str], results: set[str]) -> bool:
        """Return True if a node passes the module to code that is not followed, or may be the module.

        `dropped`: keys of the aliases that were dropped as mixed; `results`: keys of aliases that are results.
        """
        if isinstance(node, ImportNode):
            return is_mixed_import(names, node)
        if not isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.IfExp):
            return False
        if self.find_module_value(names, node) is not None:
            key = self.find_alias_key(names, node)
            return key is None or (key != "" and key not in self.project.horovod_aliases)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            return not mixed_aliases.is_declaration(names.source, node) and self.is_overwriting(names, node)
        if isinstance(node, ast.Attribute) and f".{node.attr}" in dropped and names.qualified(node) is None:
            return not is_self(node.value) and is_used_as_module(names.source, node)
        if not results:
            return False
        if isinstance(node, ast.Call):
            callees = self.calls.find_callees(names, node) if names.qualified(node) is None else []
            may_be_module = any(f"{function}()" in results for function in callees)
            return may_be_module and is_used_as_module(names.source, node)
        # A function that returns the module is passed on.
        return (
            mixed_aliases.is_passed_as_value(names.source, node)
            and f"{mixed_aliases.qualify_function(names, node)}()" in results
        )

    def is_overwriting(self, names: Names, target: ast.Attribute) -> bool:
        """Return True for `main.hvd = other`, where `main.hvd` is the module, and for `hvd.rank = other`."""
        name = names.qualified(target) or ""
        is_of_module = any(name == root or name.startswith(f"{root}.") for root in HOROVOD_MODULES)
        return is_of_module and not mixed_aliases.is_module_or_false(
            self, names, mixed_aliases.find_stored_value(names.source, target)
        )


def is_mixed_import(names: Names, statement: ImportNode) -> bool:
    """Return True if a statement imports Horovod under a name that has other bindings too."""
    base = f"{names.imported_from(statement)}." if isinstance(statement, ast.ImportFrom) else ""
    scope = names.scope_of(statement)
    for alias in statement.names:
        binds_module = base or alias.asname  # `import horovod.tensorflow` binds `horovod`
        if binds_module and canonical_name(base + alias.name) in HOROVOD_MODULES:
            name = alias.asname or alias.name
            if names.resolve(names.lookup(name, scope) or [], name) not in HOROVOD_MODULES:
                return True
    return False


def is_used_as_module(source: Source, node: ast.AST) -> bool:
    """Return True if a value is passed on, or an attribute with the name of a Horovod member is read from it."""
    parent = source.parents[node]
    if isinstance(parent, ast.Attribute):
        return parent.attr in MEMBERS
    return not isinstance(parent, ast.Expr) and not is_only_tested(source, node)


def find_key_of_target(names: Names, statement: ast.Assign | ast.AnnAssign) -> str | None:
    """Return the key of an assignment's target: "" for a local variable, None if it is not followed."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    target = targets[0]
    if len(targets) != 1 or not isinstance(target, ast.Name | ast.Attribute):
        return None
    if isinstance(target, ast.Name):
        if names.qualified(target) not in HOROVOD_MODULES:
            return None  # the name has other bindings too
        scope = names.scope_of(target)
        if isinstance(scope.node, ast.ClassDef):
            return f"{names.module}.{scope.node.name}.{target.id}"
        is_global = isinstance(scope.node, ast.Module) or target.id in scope.global_or_nonlocal
        return f"{names.module}.{target.id}" if is_global else ""
    owner = names.source.class_around(target) if is_self(target.value) else None
    return f"{names.module}.{owner.name}.{target.attr}" if owner else f".{target.attr}"


def is_only_tested(source: Source, node: ast.AST) -> bool:
    """Return True if code only tests a value: `hvd is None`, `if not hvd`."""
    parent = source.parents[node]
    if isinstance(parent, ast.Compare):
        sides = [parent.left, *parent.comparators]
        other_side = next((side for side in sides if side is not node), None)
        return (
            len(sides) == 2
            and isinstance(parent.ops[0], ast.Is | ast.IsNot | ast.Eq | ast.NotEq)
            and is_none(other_side)
        )
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


def resolve_alias(names: Names, node: ast.AST) -> str | None:
    """Return the module that a parameter, an attribute, a result or a conditional expression is; else None."""
    aliases = names.horovod_aliases
    if isinstance(node, ast.Attribute):
        owner = names.source.class_around(node) if is_self(node.value) else None
        alias = aliases.get(f"{names.module}.{owner.name}.{node.attr}") if owner else None
        return alias or aliases.get(f".{node.attr}")  # an attribute of another object, or an inherited one
    if isinstance(node, ast.Call):
        if not dotted_name(node.func):
            return None
        name = names.qualified(node.func)
        owner = names.source.class_around(node)
        if name is None and isinstance(node.func, ast.Attribute) and is_self(node.func.value) and owner:
            name = f"{names.module}.{owner.name}.{node.func.attr}"
        return aliases.get(f"{name}()") if name else None
    if isinstance(node, ast.IfExp):
        branch_names = {names.qualified(branch) for branch in (node.body, node.orelse) if not is_none(branch)}
        root = branch_names.pop() if len(branch_names) == 1 else None
        return root if root in HOROVOD_MODULES else None
    if not isinstance(node, ast.Name):
        return None
    scope = names.scope_of(node)
    while node.id not in scope.bindings:
        if scope.outer is None:
            return None
        scope = scope.outer
    function = scope.node
    if not isinstance(function, FunctionNode) or len(scope.bindings[node.id]) > 1:  # not a parameter, or bound again
        return None
    is_parameter = node.id in {parameter.arg for parameter in all_parameters(function.args)}
    name = function_name(names, function) if is_parameter else None
    return aliases.get(f"{name}({node.id})") if name else None
