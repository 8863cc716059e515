"""Branches of a script that depend on values of one rank, such as `if loss < best:`.

With one process per card every rank has its own loss. If one rank stops early, the others wait for it forever. Values
that are computed from a batch of the training loader are followed through assignments, function results, and objects
that collect them, such as lists and meters.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.migration.lookups import argument_values, find_called_function, is_self_attribute, last_name, plain_name
from viaduct.migration.rule import Site
from viaduct.migration.rules.torch._training import Alias, LoaderTrace
from viaduct.migration.source import FunctionNode

EQUAL_ATTRIBUTES = ("shape", "dtype", "device", "ndim")  # attributes of a tensor that are the same on every rank
EQUAL_RESULTS = ("size", "dim", "numel", "len")  # functions and methods whose result is the same on every rank
COLLECTING_METHODS = ("append", "extend", "update", "add")  # methods that put a value into a list or a meter
# Functions and methods that only store, print or compute a number.
HARMLESS = ("print", "item", "append", "update", "format", "float", "int", "min", "max", "round", "str", "abs", "write")
LOGGERS = ("log", "logger", "logging", "writer", "pbar", "tqdm", "warnings")  # their methods change no training


class RankDecisions:
    """Values of a file that may differ from rank to rank, and the decisions that depend on them."""

    def __init__(self, site: Site, training: list[LoaderTrace]) -> None:
        self.site, self.source = site, site.source
        self.trace = training[0]  # used to look up functions and classes, for which any trace will do
        self.differing: set[Alias] = set()  # variables and attributes whose value differs
        self.returning: set[FunctionNode] = set()  # functions that return such a value
        for trace in training:
            self.add_batches(trace)
        while self.follow_once():
            pass

    def add_batches(self, trace: LoaderTrace) -> None:
        """Record the names that hold a batch of a training loader."""
        for loop in self.source.nodes_of_type(ast.For):
            if trace.is_training_loop(loop):
                is_enumerated = isinstance(loop.target, ast.Tuple) and "enumerate" in ast.unparse(loop.iter)
                self.add_differing(loop.target.elts[-1] if is_enumerated else loop.target)  # type: ignore[attr-defined]

    def get_alias(self, node: ast.AST) -> Alias | None:
        """Return the scope and name of a variable or attribute of self; None for anything else."""
        if isinstance(node, ast.Name):
            function = self.source.function_around(node)
            return (function if self.trace.is_bound_in(function, node.id) else None, node.id)
        return (self.source.class_around(node), ast.unparse(node)) if is_self_attribute(node) else None

    def add_differing(self, target: ast.AST) -> None:
        """Record that a target holds a value that differs."""
        if isinstance(target, ast.Tuple | ast.List):
            for element in target.elts:
                self.add_differing(element)
        elif isinstance(target, ast.Subscript | ast.Starred):
            self.add_differing(target.value)
        elif (alias := self.get_alias(target)) is not None:
            self.differing.add(alias)

    def is_differing(self, node: ast.AST) -> bool:
        """Return True if the value of an expression may differ from rank to rank."""
        if isinstance(node, ast.Attribute) and node.attr in EQUAL_ATTRIBUTES:
            return False
        if isinstance(node, ast.Compare) and all(isinstance(operator, ast.Is | ast.IsNot) for operator in node.ops):
            return False
        if isinstance(node, ast.Call):
            if last_name(node.func) in EQUAL_RESULTS:
                return False
            if find_called_function(self.site.file.names, node) in self.returning:
                return True
        return self.get_alias(node) in self.differing or any(map(self.is_differing, ast.iter_child_nodes(node)))

    def follow_once(self) -> bool:
        """Follow differing values through all nodes; return True if a name or function was added."""
        former_count = len(self.differing) + len(self.returning)
        for node in self.source.nodes:
            self.follow_node(node)
        return len(self.differing) + len(self.returning) > former_count

    def follow_node(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.NamedExpr):
            if node.value is not None and self.is_differing(node.value):
                self.add_targets(node)
        elif isinstance(node, ast.Return) and node.value is not None and self.is_differing(node.value):
            function = self.source.function_around(node)
            if function is not None:
                self.returning.add(function)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self.follow_call(node.value)
        elif isinstance(node, ast.If | ast.While) and self.is_differing(node.test):
            for inner in walk_branches(node):
                self.add_targets(inner)

    def add_targets(self, node: ast.AST) -> None:
        """Record all targets of an assignment; do nothing for any other node."""
        for target in getattr(node, "targets", [getattr(node, "target", None)]):
            if target is not None:
                self.add_differing(target)

    def follow_call(self, call: ast.Call) -> None:
        """Follow a value into an object: `losses.update(loss.item())`, `history.append(loss)`, `stopper(loss)`."""
        is_collecting = isinstance(call.func, ast.Attribute) and call.func.attr in COLLECTING_METHODS
        receiver = call.func.value if is_collecting else call.func  # type: ignore[attr-defined]
        function = find_called_function(self.site.file.names, call)
        is_known = function is not None or self.site.qualified_name(receiver) is not None
        if not is_known and plain_name(receiver) not in HARMLESS and any(map(self.is_differing, argument_values(call))):
            self.add_differing(receiver)

    def first_divergence(self) -> ast.AST | None:
        """Return the first node at which ranks could act differently; None if there is none."""
        return next((node for node in self.source.nodes if self.is_divergent(node)), None)

    def is_divergent(self, node: ast.AST) -> bool:
        """Return True for a node at which ranks could act differently: a branch, a step or a learning rate."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step":
            return any(map(self.is_differing, argument_values(node)))
        if sets_learning_rate(node):
            return self.is_differing(node.value)  # type: ignore[attr-defined]
        if isinstance(node, ast.If | ast.While) and self.is_differing(node.test):
            return any(map(has_effect, walk_branches(node)))
        return False


def walk_branches(node: ast.If | ast.While) -> Iterator[ast.AST]:
    """Yield all nodes in the branches of a condition or loop."""
    for statement in (*node.body, *node.orelse):
        yield from ast.walk(statement)


def sets_learning_rate(node: ast.AST) -> bool:
    """Return True for `group["lr"] = …`."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    keys = [target.slice for target in targets if isinstance(target, ast.Subscript)]
    return any(isinstance(key, ast.Constant) and key.value == "lr" for key in keys)


def has_effect(node: ast.AST) -> bool:
    """Return True for a node that does more than compute, store or print a number, or end with an error."""
    if isinstance(node, ast.Break | ast.Continue | ast.Return) or sets_learning_rate(node):
        return True
    if not isinstance(node, ast.Call):
        return False
    parts = ast.unparse(node.func).split(".")
    return (
        parts[-1] not in HARMLESS and not any(part.lower() in LOGGERS for part in parts) and not ends_with_error(node)
    )


def ends_with_error(call: ast.Call) -> bool:
    """Return True for `sys.exit(1)`, and for a call that creates an exception."""
    name = ast.unparse(call.func).rpartition(".")[2]
    status = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else 0
    return (name in ("exit", "_exit") and status not in (0, None)) or name.endswith(("Error", "Exception"))
