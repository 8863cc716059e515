"""Training code of a script: its loaders, their names, and the loop over the epochs. Not a rule.

A loader travels: it is assigned, returned from a function, passed to another, kept in `self`. `Loaders` follows it
through one file, so that the loop over the epochs can be found that leads to a loop over the loader.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from viaduct.migration.rule import Site

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
Owner = ast.AST | None
"""Of a name: the function in which it is bound, None at module level; of `self.x` the class."""
Alias = tuple[Owner, str]
LOADER = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
COUNTING = ("range", "trange", "tqdm.trange")


@dataclass(frozen=True)
class Epochs:
    """A loop over epochs: its statement, the loader's name at it, and the variable that counts."""

    loop: ast.For
    loader: str
    epoch: str


class Loaders:
    """Names under which one loader is known in a file."""

    def __init__(self, site: Site, made: ast.Call) -> None:
        self.site, self.source = site, site.source
        self.functions = [node for node in site.source.nodes if isinstance(node, FunctionNode)]
        self.aliases: set[Alias] = set()
        self.returned: set[tuple[FunctionNode, int | None]] = (
            set()
        )  # functions that return it, and its index in a tuple
        self.note_made(made)
        while self.spread():
            pass

    # ---- names

    def note_made(self, made: ast.Call) -> None:
        """Record where the result of a DataLoader's call goes."""
        statement = self.source.statement(made)
        if isinstance(statement, ast.Return) and statement.value is made:
            self.note_returned(statement, None)
        elif isinstance(statement, ast.Assign) and statement.value is made and len(statement.targets) == 1:
            self.note_target(statement.targets[0])

    def note_target(self, target: ast.expr) -> None:
        """Record a variable or attribute that holds the loader."""
        if isinstance(target, ast.Name):
            self.aliases.add((self.source.function(target), target.id))
        elif is_self_attribute(target):
            self.aliases.add((self.class_of(target), ast.unparse(target)))

    def note_returned(self, statement: ast.Return, position: int | None) -> None:
        """Record that a function returns the loader, alone or as part of a tuple."""
        function = self.source.function(statement)
        if function is not None:
            self.returned.add((function, position))

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        """Return the class around a node."""
        return next((parent for parent in self.source.ancestors(node) if isinstance(parent, ast.ClassDef)), None)

    def knows(self, node: ast.AST) -> bool:
        """Return True if an expression is the loader."""
        if isinstance(node, ast.Name):
            function = self.source.function(node)
            if (function, node.id) in self.aliases:
                return True
            return (None, node.id) in self.aliases and not self.bound_in(function, node.id)
        return is_self_attribute(node) and (self.class_of(node), ast.unparse(node)) in self.aliases

    def bound_in(self, function: FunctionNode | None, name: str) -> bool:
        """Return True if a function binds this name itself."""
        scope = self.site.work.names.scopes.get(function) if function is not None else None
        return scope is not None and name in scope.bound

    # ---- spreading

    def spread(self) -> bool:
        """Follow the loader through calls, returns and assignments once; return True if something was added."""
        before = len(self.aliases) + len(self.returned)
        for node in self.source.nodes:
            if isinstance(node, ast.Call):
                self.through_call(node)
            elif isinstance(node, ast.Return) and node.value is not None:
                self.through_return(node, node.value)
            elif isinstance(node, ast.Assign) and len(node.targets) == 1:
                self.through_assignment(node.targets[0], node.value)
        return len(self.aliases) + len(self.returned) > before

    def through_call(self, call: ast.Call) -> None:
        """Follow the loader into a function that is called with it."""
        function = self.called_function(call)
        if function is None:
            return
        names = [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]
        names = names[1:] if names[:1] == ["self"] else names
        for name, value in zip(names, call.args, strict=False):
            if self.knows(value):
                self.aliases.add((function, name))
        for keyword in call.keywords:
            if keyword.arg and self.knows(keyword.value):
                self.aliases.add((function, keyword.arg))

    def through_return(self, statement: ast.Return, value: ast.expr) -> None:
        """Follow the loader out of a function that returns it."""
        if self.knows(value):
            self.note_returned(statement, None)
        for index, part in enumerate(value.elts if isinstance(value, ast.Tuple) else []):
            if self.knows(part):
                self.note_returned(statement, index)

    def through_assignment(self, target: ast.expr, value: ast.expr) -> None:
        """Follow the loader through an assignment."""
        if self.knows(value) and is_self_attribute(target):
            self.note_target(target)
        function = self.called_function(value) if isinstance(value, ast.Call) else None
        for given, item in [*self.returned]:
            if function is given and item is None:
                self.note_target(target)
            elif function is given and isinstance(target, ast.Tuple) and item is not None and item < len(target.elts):
                self.note_target(target.elts[item])

    def called_function(self, call: ast.Call) -> FunctionNode | None:
        """Return the function of this file that a call runs, if it is the only function or method of that name."""
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        method = isinstance(call.func, ast.Attribute)
        if method and self.site.qualified(call.func) and not is_self_attribute(call.func):
            return None
        classes = [
            statement
            for statement in self.source.tree.body
            if isinstance(statement, ast.ClassDef) and statement.name == name
        ]
        wanted = "__init__" if classes and not method else name
        found = [function for function in self.functions if function.name == wanted]
        if classes and not method:
            found = [node for node in found if self.source.parents[node] is classes[0]]
        else:
            found = [item for item in found if isinstance(self.source.parents[item], ast.ClassDef) == method]
        return found[0] if len(found) == 1 else None

    # ---- loops

    def epochs(self) -> Iterator[Epochs]:
        """Yield the loops that count epochs around the loader's use."""
        for node in self.source.nodes:
            if isinstance(node, ast.For) and isinstance(node.target, ast.Name) and self.counts(node.iter):
                name = self.name_at(node)
                if name and self.leads_to_loader(node.body, set()) and not self.within_epochs(node):
                    yield Epochs(node, name, node.target.id)

    def within_epochs(self, loop: ast.For) -> bool:
        """Return True for a counting loop within another counting loop: the outer one counts the epochs."""
        outer = (
            parent for parent in self.source.ancestors(loop) if isinstance(parent, ast.For) and self.counts(parent.iter)
        )
        return any(isinstance(ancestor.target, ast.Name) for ancestor in outer)

    @staticmethod
    def counts(value: ast.expr) -> bool:
        """Return True for an iterable with `range(…)` or trange in it, as in `tqdm(range(…))`."""
        calls = (node for node in ast.walk(value) if isinstance(node, ast.Call))
        return any(ast.unparse(call.func) in COUNTING for call in calls)

    def name_at(self, loop: ast.For) -> str:
        """Return a name of the loader that is valid at the loop; "" if there is none."""
        function, owner = self.source.function(loop), self.class_of(loop)
        for holder, name in sorted(self.aliases, key=lambda alias: alias[1]):
            local = holder is function or (holder is None and not self.bound_in(function, name))
            if (not name.startswith("self.") and local) or (name.startswith("self.") and holder is owner):
                return name
        return ""

    def leads_to_loader(self, body: list[ast.stmt], seen: set[ast.AST]) -> bool:
        """Return True if statements, or functions of this file that they call, train in a loop over the loader."""
        for node in self.walk_reached(body, seen):
            if isinstance(node, ast.For) and self.goes_over(node.iter) and self.learns(node.body):
                return True
        return False

    def goes_over(self, value: ast.expr) -> bool:
        """Return True if an iterable has the loader in it, as in `enumerate(loader)`, or is a name for such a value."""
        held = [value, self.site.values.origin(value)]
        return any(self.knows(node) for part in held for node in ast.walk(part))

    def learns(self, body: list[ast.stmt]) -> bool:
        """Return True if gradients are computed: a loop that only evaluates may see all samples on every rank."""
        return any(
            isinstance(node, ast.Attribute) and node.attr == "backward" for node in self.walk_reached(body, set())
        )

    def walk_reached(self, body: list[ast.stmt], seen: set[ast.AST]) -> Iterator[ast.AST]:
        """Yield all nodes of statements, and of the functions of this file that they call."""
        for node in (inner for statement in body for inner in ast.walk(statement)):
            yield node
            function = self.called_function(node) if isinstance(node, ast.Call) else None
            if function is not None and function not in seen:
                seen.add(function)
                yield from self.walk_reached(function.body, seen)

    def trains(self) -> bool:
        """Return True if the script's top level leads to a training loop over the loader."""
        return self.leads_to_loader(self.source.tree.body, set())


def is_self_attribute(node: ast.AST) -> bool:
    """Return True for `self.name`."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def loaders(site: Site) -> list[ast.Call]:
    """Return the calls that make a DataLoader."""
    return [call for name in LOADER for call in site.work.index.calls.get(name, [])]
