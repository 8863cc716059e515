"""Resolve a file's names to qualified names: after `import tensorflow as tf`, `tf.Session` is `tensorflow.Session`.

Scopes are Python's. A name is resolved if all its bindings in the scope agree: several imports of the same module
(`try: import tensorflow.compat.v1 as tf` / `except: import tensorflow as tf`), or aliases of a resolved name. Bindings
to None are ignored. A name without a binding is looked up in the star imports. Any other name is not resolved.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, TypeVar

from viaduct.cards import CARDS
from viaduct.cards.tensorflow_api import NPU_INIT, STAR_NAMES
from viaduct.migration.predicates import is_none
from viaduct.migration.reexports import Exports
from viaduct.migration.source import FunctionNode, Source

# (prefix of a qualified name, prefix that replaces it): TensorFlow and Horovod export the same API under several names.
SPELLINGS = (
    ("tensorflow.compat.v1.", "tensorflow."),
    ("tensorflow._api.v1.", "tensorflow."),
    ("tensorflow.python.keras.", "tensorflow.keras."),
    ("tensorflow.contrib.keras.", "tensorflow.keras."),
    ("tensorflow.contrib.tpu.", "tensorflow.estimator.tpu."),
    ("tensorflow.tpu.", "tensorflow.estimator.tpu."),
    ("tensorflow.contrib.estimator.", "tensorflow.estimator."),
    ("tensorflow_estimator.python.estimator.api.", "tensorflow.estimator."),
    ("horovod.tensorflow.compression.", "horovod.tensorflow."),
    ("horovod.tensorflow.mpi_ops.", "horovod.tensorflow."),
    ("horovod.tensorflow.functions.", "horovod.tensorflow."),
    *((f"{card.plugin_module}.", f"{card.torch_module}.") for card in CARDS.values()),  # torch_npu.npu is torch.npu
)
Function = FunctionNode | ast.Lambda
BINDING_NODES = (
    ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.Name, ast.Global, ast.Nonlocal,
    ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping,
)  # fmt: skip
# Nodes that bind names or open scopes: `walk_nodes` hands them to `visit`.
SCOPE_AND_BINDING_NODES = {
    *(*BINDING_NODES, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda),
    ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.comprehension,
}  # fmt: skip
# `from tensorflow import *` binds these names, even if one of MODULES_WITHOUT_CLASSES is imported with a star too.
TENSORFLOW_TOP_CLASSES = (
    "Session", "InteractiveSession", "ConfigProto", "GPUOptions", "GraphOptions", "OptimizerOptions",
)  # fmt: skip
MODULES_WITHOUT_CLASSES = ("math", "numpy", "os", "pylab", "random", "scipy", "time")
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Bindings = list[str | ast.expr | None]
"""Bindings of a name in a scope: qualified names, assigned expressions, and None for any other (a parameter)."""
Table = TypeVar("Table")
MAX_ALIASES = 100  # a longer chain `a = b`, `b = c` … is not resolved: each link is a recursion
MISSING: Any = object()  # for dict.get, where None is a value


@lru_cache(maxsize=65536)
def canonical_name(name: str) -> str:
    """Return a qualified name with the prefixes of SPELLINGS replaced."""
    dotted = name + "."
    changed = True
    while changed:
        changed = False
        for spelling, prefix in SPELLINGS:
            if dotted.startswith(spelling):
                dotted, changed = prefix + dotted[len(spelling) :], True
    return dotted[:-1]


@dataclass(eq=False)
class Scope:
    """Scope of a module, a class, a function or a comprehension."""

    node: ast.AST
    outer: Scope | None
    bindings: dict[str, Bindings] = field(default_factory=dict)
    global_or_nonlocal: dict[str, Scope] = field(default_factory=dict)  # name declared so -> the scope that binds it

    def bind(self, name: str, value: str | ast.expr | None) -> None:
        self.global_or_nonlocal.get(name, self).bindings.setdefault(name, []).append(value)


@dataclass(frozen=True)
class TopLevel:
    """Qualified names of the names of a module's top level."""

    resolved: dict[str, str | None]  # names that the module binds
    stars: list[str]  # modules that are imported with a star
    requested_imports: dict[str, str]  # names whose imports rules have requested

    def find_changes(self, former: TopLevel) -> set[str]:
        """Return the names that are new, gone, or resolve to something else than before."""
        tables = ((self.resolved, former.resolved), (self.requested_imports, former.requested_imports))
        return {
            name
            for now, before in tables
            for name in now.keys() | before.keys()
            if name not in now or name not in before or now[name] != before[name]
        }


@dataclass(frozen=True)
class StatementNames:
    """Scopes and bindings of one top-level statement; reused until a rule edits the statement."""

    scopes: list[Scope]  # outer ones before inner ones
    bindings: dict[str, Bindings]  # module-level names that it binds
    stars: list[str]


class Names:
    """The names of one file."""

    def __init__(
        self,
        source: Source,
        module: str = "",
        is_package: bool = False,
        requested_imports: dict[str, str] | None = None,
        former: Names | None = None,
    ):
        """Find the scopes of a file.

        `module`: its dotted name; `is_package`: the file is an __init__; `requested_imports`: imports that rules have
        requested, local name -> qualified name; `former`: the Names of the text before the last edits, reused for
        statements that were not edited.
        """
        self.source = source
        self.module = module
        self.package = module if is_package else module.rpartition(".")[0]  # `from . import x` imports from it
        self.requested_imports = requested_imports or {}
        self.exports: Exports | None = None  # of the project; set once the project is surveyed
        self.followed: dict[str, str] = {}  # see follow
        self.stars: list[str] = []  # modules imported with a star, in the order of the text
        self.scopes: dict[ast.AST, Scope] = {}  # by the node that opens it
        self.scope_by_name: dict[ast.AST, Scope] = {}  # scope of each ast.Name
        self.lookups: dict[tuple[Scope, str], Bindings | None] = {}  # cache of `lookup`
        # Cache of `resolve`; each key is the id of a list of bindings.
        self.resolved: dict[int, str | None] = {}
        self.resolving: dict[int, None] = {}  # keys that are being resolved, in order
        self.provisional: dict[int, None] = {}  # keys with a None that may change: see resolve
        self.horovod_aliases: dict[str, str] = {}  # see module_flow.py; empty for a file without any
        self.tables: dict[str, Any] = {}  # see get_table
        self.by_statement: dict[ast.stmt, StatementNames] = {}
        self.walk_module(former.by_statement if former is not None else {})

    # ---- building

    def walk_module(self, former_statements: dict[ast.stmt, StatementNames]) -> None:
        """Find what each top-level statement binds, from the last statement to the first, as `walk_nodes` does."""
        top = self.scopes[self.source.tree] = Scope(self.source.tree, None)
        bound: dict[str, Bindings] = {}
        for statement in reversed(self.source.tree.body):
            former = former_statements.get(statement)
            part = self.walk_statement(statement, top) if former is None else self.reuse_statement(former, top)
            if not any(scope.global_or_nonlocal for scope in part.scopes):  # they refer to scopes of this text
                self.by_statement[statement] = part
            for name, values in part.bindings.items():
                bound.setdefault(name, []).extend(values)
            self.stars += part.stars
        top.bindings = bound
        self.stars.reverse()  # into the order of the text

    def reuse_statement(self, part: StatementNames, top: Scope) -> StatementNames:
        """Return the names of an unedited statement, with its scopes copied: their outermost scope is now `top`."""
        scopes: list[Scope] = []
        for scope in part.scopes:
            outer = self.scopes.get(scope.outer.node, top) if scope.outer is not None else top
            scopes.append(Scope(scope.node, outer, scope.bindings))
            self.scopes[scope.node] = scopes[-1]
        return StatementNames(scopes, part.bindings, part.stars)

    def walk_statement(self, statement: ast.stmt, top: Scope) -> StatementNames:
        """Find the scopes of one top-level statement, and the module-level names that it binds."""
        outer_scopes, outer_stars = self.scopes, self.stars
        self.scopes, self.stars, top.bindings = {}, [], {}
        self.walk_nodes([statement], top)
        part = StatementNames([*self.scopes.values()], top.bindings, self.stars)
        outer_scopes.update(self.scopes)
        self.scopes, self.stars = outer_scopes, outer_stars
        return part

    def walk_scope(self, node: ast.AST, outer: Scope) -> None:
        """Find the scope that a node opens, and the scopes within it."""
        scope = Scope(node, outer)
        self.scopes[node] = scope
        if isinstance(node, Function):
            for argument in all_parameters(node.args):
                scope.bind(argument.arg, None)
        body = node.body if isinstance(node, ast.ClassDef | Function) else [node]
        pending: list[ast.AST] = [*body] if isinstance(body, list) else [body]
        if isinstance(node, Comprehension):
            pending = [*self.source.children[node]]
        self.walk_nodes(pending, scope)

    def walk_nodes(self, pending: list[ast.AST], scope: Scope) -> None:
        """Record the names that nodes and their descendants bind in a scope, from the last node to the first."""
        children, scope_by_name = self.source.children, self.scope_by_name
        while pending:  # most nodes bind nothing and open no scope
            node = pending.pop()
            kind = type(node)
            if kind is ast.Name:
                scope_by_name[node] = scope
                if type(node.ctx) is not ast.Load:  # type: ignore[attr-defined]
                    self.record_bindings(node, scope)
            elif kind in SCOPE_AND_BINDING_NODES:
                self.visit(node, scope, pending)
            else:
                pending += children[node]

    def visit(self, node: ast.AST, scope: Scope, pending: list[ast.AST]) -> None:
        """Record what a node binds, walk the scope it opens, and add its nodes in the outer scope to `pending`."""
        if isinstance(node, FunctionNode | ast.ClassDef):
            scope.bind(node.name, f"{self.module}.{node.name}" if scope.outer is None and self.module else None)
            pending += node.decorator_list
        if isinstance(node, ast.ClassDef):
            pending += [*node.bases, *node.keywords]
        elif isinstance(node, Function):
            pending += [default for default in [*node.args.defaults, *node.args.kw_defaults] if default]
        elif isinstance(node, Comprehension):
            pending.append(node.generators[0].iter)  # evaluated outside
        if isinstance(node, ast.ClassDef | Function | Comprehension):
            self.walk_scope(node, scope)
        elif isinstance(scope.node, Comprehension) and node is scope.node.generators[0]:
            pending += [scope.node.generators[0].target, *scope.node.generators[0].ifs]
        else:
            if isinstance(node, BINDING_NODES):
                self.record_bindings(node, scope)
            pending += self.source.children[node]

    def record_bindings(self, node: ast.AST, scope: Scope) -> None:
        """Record the names that a node binds in a scope."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                complete, first = alias.name, alias.name.partition(".")[0]
                scope.bind(alias.asname or first, canonical_name(complete if alias.asname else first))
        elif isinstance(node, ast.ImportFrom):
            base = self.imported_from(node)
            for alias in node.names:
                if alias.name == "*":
                    self.stars.append(canonical_name(base))
                else:
                    scope.bind(alias.asname or alias.name, canonical_name(f"{base}.{alias.name}"))
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            scope.bind(node.targets[0].id, node.value)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and isinstance(node.target, ast.Name):
            while isinstance(scope.node, Comprehension) and scope.outer is not None:  # := binds outside comprehensions
                scope = scope.outer
            scope.bind(node.target.id, node.value)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            if not self.is_plain_target(node):
                scope.bind(node.id, self.find_assigned_none(node))
        elif isinstance(node, ast.Global | ast.Nonlocal):
            self.redirect(node, scope)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            scope.bind(node.name, None)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            scope.bind(node.rest, None)

    def is_plain_target(self, node: ast.Name) -> bool:
        """Return True for the only target of an assignment: `record_bindings` records the value assigned to it."""
        parent = self.source.parents[node]
        if isinstance(parent, ast.Assign):
            return len(parent.targets) == 1 and parent.targets[0] is node
        return isinstance(parent, ast.AnnAssign | ast.NamedExpr) and parent.target is node

    def find_assigned_none(self, target: ast.Name) -> ast.expr | None:
        """Return the literal None assigned to one of several targets: `hvd, n = None, 1` or `hvd = mpi = None`."""
        target_parent = self.source.parents[target]
        statement = self.source.parents[target_parent] if isinstance(target_parent, ast.Tuple) else target_parent
        if not isinstance(statement, ast.Assign):
            return None
        targets: list[ast.expr] = target_parent.elts if isinstance(target_parent, ast.Tuple) else [target]
        values = getattr(statement.value, "elts", []) if isinstance(target_parent, ast.Tuple) else [statement.value]
        if len(values) != len(targets) or any(isinstance(item, ast.Starred) for item in [*targets, *values]):
            return None
        value = values[targets.index(target)]
        return value if is_none(value) else None

    def redirect(self, node: ast.Global | ast.Nonlocal, scope: Scope) -> None:
        """Let `global` names be bound in the module's scope, `nonlocal` names in the next outer one.

        A scope further out, to which `nonlocal` may refer, is not searched for.
        """
        top = scope
        while top.outer is not None:
            top = top.outer
        target = top if isinstance(node, ast.Global) else (scope.outer or top)
        if target is scope:
            return  # `global x` at module level has no effect; recording it would make `binding_scope` loop
        for name in node.names:
            scope.global_or_nonlocal[name] = target
            for value in scope.bindings.pop(name, []):
                target.bind(name, value)

    def imported_from(self, node: ast.ImportFrom) -> str:
        """Return the absolute name of the module that a `from … import` names."""
        if not node.level:
            return node.module or ""
        parts = self.package.split(".") if self.package else []
        package = parts[: len(parts) - node.level + 1]
        return ".".join([*package, *([node.module] if node.module else [])]) or "."

    # ---- resolving

    def copy_without_requested_imports(self) -> Names:
        """Return the names of the same file without the imports that rules have requested."""
        names = copy(self)
        names.requested_imports, names.resolved = {}, {}
        for cached in ("used_names", "local_names"):
            names.__dict__.pop(cached, None)
        return names

    def get_table(self, key: str, make: Callable[[], Table]) -> Table:
        """Return the table cached under `key`; make it first if it is missing. It must depend on the text alone."""
        if key not in self.tables:
            self.tables[key] = make()
        return self.tables[key]  # type: ignore[no-any-return]

    def scope_of(self, node: ast.AST) -> Scope:
        """Return the scope in which an expression is evaluated: for defaults and decorators, the scope outside."""
        known_scope = self.scope_by_name.get(node)
        if known_scope is not None:
            return known_scope
        child = node
        for parent in self.source.ancestors(node):
            scope = self.scopes.get(parent)
            if scope is not None and not self.is_outside(child, parent):
                return scope
            child = parent
        return self.scopes[self.source.tree]

    @staticmethod
    def is_outside(child: ast.AST, scope: ast.AST) -> bool:
        """Return True if a child of a node that opens a scope is evaluated outside this scope."""
        if isinstance(scope, FunctionNode | ast.ClassDef):
            return not isinstance(child, ast.stmt)  # only the body consists of statements
        return isinstance(scope, ast.Lambda) and child is not scope.body

    def lookup(self, name: str, scope: Scope) -> Bindings | None:
        """Return the bindings of a name as used in a scope; None without any."""
        owner = self.binding_scope(name, scope)
        return owner.bindings[name] if owner is not None else None

    def binding_scope(self, name: str, scope: Scope) -> Scope | None:
        """Return the scope that binds a name as used in `scope`: this one or an outer one, else None."""
        candidate: Scope | None = scope
        while candidate is not None:
            is_visible = candidate is scope or not isinstance(candidate.node, ast.ClassDef)
            if name in candidate.global_or_nonlocal:
                candidate = candidate.global_or_nonlocal[name]
            elif is_visible and name in candidate.bindings:
                return candidate
            else:
                candidate = candidate.outer
        return None

    def qualified(self, node: ast.AST) -> str | None:
        """Return the qualified name of an expression (see `canonical_name`); None if it cannot be resolved."""
        if self.horovod_aliases:
            return self.qualified_through_aliases(node)
        attributes: list[str] = []
        while node.__class__ is ast.Attribute:  # half of the time of a migration is spent here and below
            attributes.append(node.attr)
            node = node.value
        base = self.base_name(node) if node.__class__ is ast.Name else None
        if base is None:
            return None
        if attributes:
            attributes.append(base)
            base = canonical_name(".".join(attributes[::-1]))
        return base if self.exports is None else self.follow(base)

    def base_name(self, node: ast.Name) -> str | None:
        """Return the qualified name of a plain name, before `follow`; None if it cannot be resolved."""
        key = self.scope_by_name.get(node) or self.scope_of(node), node.id
        if key not in self.lookups:
            self.lookups[key] = self.lookup(node.id, key[0])
        bound = self.lookups[key]
        if bound is None:
            return self.requested_imports.get(node.id) or self.resolve_star_name(node.id)
        result = self.resolved.get(id(bound), MISSING)
        return self.resolve(bound, node.id) if result is MISSING else result

    def qualified_through_aliases(self, node: ast.AST) -> str | None:
        """Return the qualified name in a file with `horovod_aliases`: parameters and attributes that hold modules."""
        from viaduct.migration.module_flow import resolve_alias

        chain: list[ast.AST] = [node]
        while isinstance(node, ast.Attribute):
            node = node.value
            chain.append(node)
        name: str | None = None
        for part in reversed(chain):
            if name is not None and isinstance(part, ast.Attribute):
                name = self.follow(canonical_name(f"{name}.{part.attr}"))
            elif isinstance(part, ast.Name):
                base = self.base_name(part)
                name = self.follow(base) if base is not None else None
            name = self.horovod_aliases.get(name, name) if name is not None else resolve_alias(self, part)
        return name

    def follow(self, name: str) -> str:
        """Return the name that a qualified name stands for if modules of the project re-export it; else itself."""
        if self.exports is None:
            return name
        if name not in self.followed:
            self.followed[name] = canonical_name(self.exports.follow(name, self.package))
        return self.followed[name]

    def resolve(self, bound: Bindings, name: str) -> str | None:
        """Return the qualified name that all bindings of a name agree on, else None; the result is cached.

        If names depend on each other (`a = b; b = a`), the None of an inner name is provisional: it is cached only if
        the outermost name is None too.
        """
        key = id(bound)
        if key in self.resolved:
            return self.resolved[key]
        if key in self.resolving or key in self.provisional:
            return None
        if len(self.resolving) > MAX_ALIASES:
            return None
        self.resolving[key] = None
        result = self.common_name(bound) or self.resolve_equivalent_bindings(bound, name)
        del self.resolving[key]
        if result is not None or not self.resolving:
            self.resolved[key] = result
        else:
            self.provisional[key] = None
        if not self.resolving:
            if result is None:
                self.resolved |= self.provisional
            self.provisional.clear()
        return result

    @staticmethod
    def resolve_equivalent_bindings(bound: Bindings, name: str) -> str | None:
        """Return the imported name if all other bindings are members that mean the same: `tf = tf.compat.v1`."""
        imported = {value for value in bound if not isinstance(value, ast.expr)}
        base = imported.pop() if len(imported) == 1 else None
        if base is None:
            return None
        texts = [ast.unparse(value) if isinstance(value, ast.Attribute) else "" for value in bound if value != base]
        same = (text.startswith(f"{name}.") and canonical_name(base + text[len(name) :]) == base for text in texts)
        return base if all(same) else None

    def common_name(self, bound: Bindings) -> str | None:
        """Return the qualified name that all bindings have, ignoring bindings to None; None if they differ."""
        names: set[str | None] = set()
        for value in bound:
            if isinstance(value, ast.Constant) and value.value is None:
                continue
            names.add(self.qualified(value) if isinstance(value, ast.expr) else value)
            if len(names) > 1:
                return None
        return names.pop() if names else None

    def resolve_star_name(self, name: str) -> str | None:
        """Return the name in the module whose star import presumably binds it; None for builtins, or if none does."""
        if not self.stars or hasattr(builtins, name) or name.startswith("__"):
            return None
        for star in self.stars:
            if star == NPU_INIT and name in STAR_NAMES:  # `from npu_bridge.npu_init import *` binds these names
                return STAR_NAMES[name]
        modules = [star for star in self.stars if star != NPU_INIT]
        exported = self.exports.find_in_stars(name, modules, self.package) if self.exports is not None else None
        if exported is not None:
            return exported
        without_classes = ("tensorflow", *MODULES_WITHOUT_CLASSES)
        is_unambiguous = all(star.partition(".")[0] in without_classes for star in modules)
        if name in TENSORFLOW_TOP_CLASSES and "tensorflow" in modules and is_unambiguous:
            return f"tensorflow.{name}"
        return canonical_name(f"{modules[-1]}.{name}") if modules else None  # the last star import wins

    def resolve_top_level(self) -> TopLevel:
        bound = self.scopes[self.source.tree].bindings
        resolved = {name: self.resolve(values, name) for name, values in bound.items()}
        return TopLevel(resolved, self.stars, dict(self.requested_imports))

    def is_hidden(self, name: str, at: ast.AST) -> bool:
        """Return True if a parameter or a local variable hides a module's name at a node."""
        top = self.scopes[self.source.tree]
        return name in top.bindings and self.lookup(name, self.scope_of(at)) is not top.bindings[name]

    @cached_property
    def used_names(self) -> set[str]:
        """All names that the file uses or binds anywhere."""
        used = {node.id for node in self.source.nodes_of_type(ast.Name)}
        return used | {name for scope in self.scopes.values() for name in scope.bindings} | set(self.requested_imports)

    def local_name(self, qualified: str) -> str | None:
        """Return the module-level name, bound in the file or requested, that stands for a qualified name; else None."""
        if qualified in self.local_names:
            return self.local_names[qualified]
        return self.requested_name(qualified)

    def requested_name(self, qualified: str) -> str | None:
        """Return the local name under which rules have requested the import of a qualified name; else None."""
        return next((name for name, full in self.requested_imports.items() if full == qualified), None)

    @cached_property
    def local_names(self) -> dict[str, str]:
        """Qualified name -> a module-level name that stands for it."""
        names: dict[str, str] = {}
        for name, bound in self.scopes[self.source.tree].bindings.items():
            full = self.resolve(bound, name) if bound else None
            if full is not None:
                names.setdefault(full, name)
        return names


def all_parameters(arguments: ast.arguments) -> list[ast.arg]:
    """Return all parameters of a function, including *args and **kwargs."""
    starred = [argument for argument in (arguments.vararg, arguments.kwarg) if argument]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *starred]
