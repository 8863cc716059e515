"""Decisions of a script that depend on the samples of one rank alone, such as its loss. Not a rule.

Under DataParallel one process sees every sample. With one process a card each has a loss of its own: one rank would
lower the learning rate, stop early or keep its weights while the others go on, and wait for it for ever.

What comes out of a batch of the training loader is followed through assignments, sums, meters and what a function
returns. Sizes are taken to be alike on every rank, and so is the number of a step.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.migration.rule import Site
from viaduct.migration.rules.torch._training import Alias, FunctionNode, Loaders, is_self_attribute

ALIKE = ("shape", "dtype", "device", "ndim")
ASKED = ("size", "dim", "numel", "len")
KEEPS = ("append", "extend", "update", "add")
"""Methods by which a list or a meter takes something in."""
HARMLESS = ("print", "item", "append", "update", "format", "float", "int", "min", "max", "round", "str", "abs", "write")
LOGGERS = ("log", "logger", "logging", "writer", "pbar", "tqdm", "warnings")


class Decisions:
    """Values of a file that differ from rank to rank, and the decisions that depend on them."""

    def __init__(self, site: Site, training: list[Loaders]) -> None:
        self.site, self.source, self.training = site, site.source, training
        self.local: set[Alias] = set()
        self.returning: set[FunctionNode] = set()  # functions that return such a value
        for seen in training:
            self.note_batches(seen)
        while self.spread():
            pass

    def note_batches(self, seen: Loaders) -> None:
        """Record the names that hold a batch of the training loader."""
        for node in self.source.nodes:
            if isinstance(node, ast.For) and seen.goes_over(node.iter) and seen.learns(node.body):
                counted = isinstance(node.target, ast.Tuple) and "enumerate" in ast.unparse(node.iter)
                self.note(node.target.elts[-1] if counted else node.target)  # type: ignore[attr-defined]

    # ---- names

    def key(self, node: ast.AST) -> Alias | None:
        """Return what identifies a name or attribute in this file."""
        if isinstance(node, ast.Name):
            function = self.source.function(node)
            return (function if self.training[0].bound_in(function, node.id) else None, node.id)
        return (self.training[0].class_of(node), ast.unparse(node)) if is_self_attribute(node) else None

    def note(self, target: ast.AST) -> None:
        """Record that a target holds something that one rank alone knows."""
        if isinstance(target, ast.Tuple | ast.List):
            for element in target.elts:
                self.note(element)
        elif isinstance(target, ast.Subscript | ast.Starred):
            self.note(target.value)
        elif (key := self.key(target)) is not None:
            self.local.add(key)

    def knows(self, node: ast.AST) -> bool:
        """Return True if the value of an expression may differ from rank to rank."""
        if isinstance(node, ast.Attribute) and node.attr in ALIKE:
            return False
        if isinstance(node, ast.Compare) and all(isinstance(item, ast.Is | ast.IsNot) for item in node.ops):
            return False
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in ASKED:
                return False
            if self.training[0].called_function(node) in self.returning:
                return True
        if self.key(node) in self.local:
            return True
        return any(self.knows(inner) for inner in ast.iter_child_nodes(node))

    # ---- spreading

    def spread(self) -> bool:
        """Follow known values through all nodes once; return True if something was added."""
        before = len(self.local) + len(self.returning)
        for node in self.source.nodes:
            self.follow_node(node)
        return len(self.local) + len(self.returning) > before

    def follow_node(self, node: ast.AST) -> None:
        """Follow known values through one node."""
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.NamedExpr):
            if node.value is not None and self.knows(node.value):
                self.note_all(node)
        elif isinstance(node, ast.Return) and node.value is not None and self.knows(node.value):
            function = self.source.function(node)
            if function is not None:
                self.returning.add(function)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self.follow_call(node.value)
        elif isinstance(node, ast.If | ast.While) and self.knows(node.test):
            for inner in inside(node):
                self.note_all(inner)

    def note_all(self, node: ast.AST) -> None:
        """Record all targets of an assignment."""
        for target in getattr(node, "targets", [getattr(node, "target", None)]):
            if target is not None:
                self.note(target)

    def follow_call(self, call: ast.Call) -> None:
        """`losses.update(loss.item())`, `history.append(loss)`, `early_stopping(loss, model)`."""
        values = [*call.args, *(keyword.value for keyword in call.keywords)]
        held = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr in KEEPS else call.func
        own = self.training[0].called_function(call) is not None or self.site.qualified(held) is not None
        if not own and getattr(held, "id", "") not in HARMLESS and any(map(self.knows, values)):
            self.note(held)

    # ---- deciding

    def first_divergence(self) -> ast.AST | None:
        """Return the first node at which ranks could act differently; None if there is none."""
        return next((node for node in self.source.nodes if self.diverges(node)), None)

    def diverges(self, node: ast.AST) -> bool:
        """Return True for a node at which ranks could act differently: a branch, a step or a learning rate."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step":
            return any(self.knows(item) for item in (*node.args, *(keyword.value for keyword in node.keywords)))
        if isinstance(node, ast.Assign) and any(is_rate(target) for target in node.targets):
            return self.knows(node.value)
        if isinstance(node, ast.If | ast.While) and self.knows(node.test):
            return any(acts(inner) for inner in inside(node))
        return False


def inside(node: ast.If | ast.While) -> Iterator[ast.AST]:
    """Yield all nodes in the branches of a condition or loop."""
    for statement in (*node.body, *node.orelse):
        yield from ast.walk(statement)


def is_rate(target: ast.expr) -> bool:
    """`group["lr"] = …`."""
    return isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant) and target.slice.value == "lr"


def acts(node: ast.AST) -> bool:
    """Return True for a node that does more than store or print a number.

    A node that fails does not count: a rank that fails ends all of them.
    """
    if isinstance(node, ast.Break | ast.Continue | ast.Return):
        return True
    if isinstance(node, ast.Assign) and any(is_rate(target) for target in node.targets):
        return True
    if not isinstance(node, ast.Call):
        return False
    words = ast.unparse(node.func).split(".")
    return words[-1] not in HARMLESS and not any(text.lower() in LOGGERS for text in words) and not fails(node)


def fails(call: ast.Call) -> bool:
    """Return True for `sys.exit(1)`, and for a call that makes an exception."""
    name = ast.unparse(call.func).rpartition(".")[2]
    status = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else 0
    return (name in ("exit", "_exit") and status not in (0, None)) or name.endswith(("Error", "Exception"))
