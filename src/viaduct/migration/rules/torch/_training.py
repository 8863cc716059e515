"""Training loops of a script: its data loaders, their names, and the loops over epochs.

`LoaderTrace` follows one loader through a file: through assignments, calls, returns and attributes of `self`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from viaduct.migration.lookups import (
    bind_arguments,
    find_called_function,
    is_self_attribute,
    plain_name,
    positional_parameters,
)
from viaduct.migration.rule import Site
from viaduct.migration.source import FunctionNode

Alias = tuple[ast.AST | None, str]
"""Variable or attribute: its function (None for the module, for `self.x` the class), and its name."""
DATA_LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
COUNTING_FUNCTIONS = ("range", "trange", "tqdm.trange")


@dataclass(frozen=True)
class EpochLoop:
    """A loop over epochs."""

    loop: ast.For
    loader: str  # the loader's name within the loop
    epoch: str  # the loop's variable


class LoaderTrace:
    """Names under which one loader is known in a file, and the loops over it."""

    def __init__(self, site: Site, call: ast.Call) -> None:
        self.site, self.source = site, site.source
        self.aliases: set[Alias] = set()
        # Functions that return the loader, each with its index in the returned tuple; None: the loader itself.
        self.returning: set[tuple[FunctionNode, int | None]] = set()
        self.add_result(call)
        while self.follow_once():
            pass

    def add_result(self, call: ast.Call) -> None:
        """Record the variable that gets the result of a call, or the function that returns the result."""
        statement = self.source.statement_around(call)
        if isinstance(statement, ast.Return) and statement.value is call:
            self.add_returning(statement, None)
        elif isinstance(statement, ast.Assign) and statement.value is call and len(statement.targets) == 1:
            self.add_target(statement.targets[0])

    def add_target(self, target: ast.expr) -> None:
        """Record a variable or attribute that holds the loader."""
        if isinstance(target, ast.Name):
            self.aliases.add((self.source.function_around(target), target.id))
        elif is_self_attribute(target):
            self.aliases.add((self.source.class_around(target), ast.unparse(target)))

    def add_returning(self, statement: ast.Return, index: int | None) -> None:
        """Record that a function returns the loader, or a tuple with the loader at an index."""
        function = self.source.function_around(statement)
        if function is not None:
            self.returning.add((function, index))

    def is_loader(self, node: ast.AST) -> bool:
        """Return True if an expression is the loader."""
        if isinstance(node, ast.Name):
            function = self.source.function_around(node)
            if (function, node.id) in self.aliases:
                return True
            return (None, node.id) in self.aliases and not self.is_bound_in(function, node.id)
        return is_self_attribute(node) and (self.source.class_around(node), ast.unparse(node)) in self.aliases

    def is_bound_in(self, function: FunctionNode | None, name: str) -> bool:
        """Return True if a function binds this name."""
        scope = self.site.file.names.scopes.get(function) if function is not None else None
        return scope is not None and name in scope.bindings

    def follow_once(self) -> bool:
        """Follow the loader through all calls, returns and assignments; return True if a name or function was added."""
        former_count = len(self.aliases) + len(self.returning)
        for node in self.source.nodes:
            if isinstance(node, ast.Call):
                self.follow_into_call(node)
            elif isinstance(node, ast.Return) and node.value is not None:
                self.follow_return(node, node.value)
            elif isinstance(node, ast.Assign) and len(node.targets) == 1:
                self.follow_assignment(node.targets[0], node.value)
        return len(self.aliases) + len(self.returning) > former_count

    def follow_into_call(self, call: ast.Call) -> None:
        """Follow the loader into a function that is called with it."""
        function = find_called_function(self.site.file.names, call)
        if function is None:
            return
        names = positional_parameters(function)
        names = names[1:] if names[:1] == ["self"] else names
        passed = bind_arguments(call, names).items()
        self.aliases |= {(function, name) for name, value in passed if self.is_loader(value)}

    def follow_return(self, statement: ast.Return, value: ast.expr) -> None:
        """Follow the loader out of a function that returns it."""
        if self.is_loader(value):
            self.add_returning(statement, None)
        for index, element in enumerate(value.elts if isinstance(value, ast.Tuple) else []):
            if self.is_loader(element):
                self.add_returning(statement, index)

    def follow_assignment(self, target: ast.expr, value: ast.expr) -> None:
        """Follow the loader into an attribute of self, and out of a function whose result is assigned."""
        if self.is_loader(value) and is_self_attribute(target):
            self.add_target(target)
        called = find_called_function(self.site.file.names, value) if isinstance(value, ast.Call) else None
        for index in [index for function, index in self.returning if function is called]:
            if index is None:
                self.add_target(target)
            elif isinstance(target, ast.Tuple) and index < len(target.elts):
                self.add_target(target.elts[index])

    def find_epoch_loops(self) -> Iterator[EpochLoop]:
        """Yield the outermost counting loops that lead to a training loop over the loader."""
        for node in self.source.nodes_of_type(ast.For):
            if is_counting_loop(node) and not any(map(is_counting_loop, self.source.ancestors(node))):
                name = self.name_at(node)
                if name and self.leads_to_training(node.body):
                    yield EpochLoop(node, name, plain_name(node.target))

    def name_at(self, loop: ast.For) -> str:
        """Return a name of the loader that is valid at the loop; "" if there is none."""
        function, own_class = self.source.function_around(loop), self.source.class_around(loop)
        for owner, name in sorted(self.aliases, key=lambda alias: alias[1]):
            if name.startswith("self."):
                is_valid = owner is own_class
            else:
                is_valid = owner is function or (owner is None and not self.is_bound_in(function, name))
            if is_valid:
                return name
        return ""

    def leads_to_training(self, body: list[ast.stmt]) -> bool:
        """Return True if statements, or functions of this file that they call, train in a loop over the loader."""
        return any(isinstance(node, ast.For) and self.is_training_loop(node) for node in self.walk_reached(body, set()))

    def is_training_loop(self, loop: ast.For) -> bool:
        """Return True for a loop over the loader that computes gradients."""
        iterables = (loop.iter, self.site.values.assigned_value(loop.iter))  # enumerate(loader), or a name for it
        is_over_loader = any(self.is_loader(node) for iterable in iterables for node in ast.walk(iterable))
        reached = self.walk_reached(loop.body, set())
        return is_over_loader and any(isinstance(node, ast.Attribute) and node.attr == "backward" for node in reached)

    def walk_reached(self, body: list[ast.stmt], entered: set[ast.AST]) -> Iterator[ast.AST]:
        """Yield all nodes of statements, and of the functions of this file that they call, each function once."""
        for node in (inner for statement in body for inner in ast.walk(statement)):
            yield node
            function = find_called_function(self.site.file.names, node) if isinstance(node, ast.Call) else None
            if function is not None and function not in entered:
                entered.add(function)
                yield from self.walk_reached(function.body, entered)


def is_counting_loop(node: ast.AST) -> bool:
    """Return True for a loop with one variable over `range(…)`, trange or `tqdm(range(…))`."""
    if not isinstance(node, ast.For) or not isinstance(node.target, ast.Name):
        return False
    calls = (inner for inner in ast.walk(node.iter) if isinstance(inner, ast.Call))
    return any(ast.unparse(call.func) in COUNTING_FUNCTIONS for call in calls)
