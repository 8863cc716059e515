"""Questions about one syntax node that several modules ask, such as `is_none` and `find_argument`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    from viaduct.migration.rule import Site
    from viaduct.migration.source import Source


def is_none(node: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def is_none_or_absent(node: ast.AST | None) -> bool:
    """Return True for the literal None and for an argument that is not given."""
    return node is None or is_none(node)


def is_literal(node: ast.AST | None) -> TypeGuard[ast.Constant]:
    """Return True for an ast.Constant: string, bytes, unsigned number, True, False, None, `...`."""
    return isinstance(node, ast.Constant)


def is_constant(node: ast.AST | None, value: object) -> bool:
    """Return True for the literal `value`: True, False or None. They are compared by `is`, as 1 == True."""
    return isinstance(node, ast.Constant) and node.value is value


def is_string(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def is_literal_in(node: ast.AST | None, *values: object) -> bool:
    return isinstance(node, ast.Constant) and node.value in values


def is_self(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def is_super(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def is_property(function: ast.AST) -> bool:
    """Return True for a function under `@property`, `@cached_property` or another `…property` decorator."""
    decorators = getattr(function, "decorator_list", [])
    return any(getattr(node, "attr", getattr(node, "id", "")).endswith("property") for node in decorators)


def is_in_annotation(source: Source, node: ast.AST) -> bool:
    """Return True for a name in `scaler: Optional[GradScaler] = …` and `-> GradScaler`, not for the assigned value."""
    child = node
    for parent in source.ancestors(node):
        annotation = getattr(parent, "annotation", None) or getattr(parent, "returns", None)
        if annotation is child:
            return True
        if isinstance(parent, ast.stmt):
            return False
        child = parent
    return False


def is_in_instance_check(source: Source, node: ast.AST) -> bool:
    """Return True for a class in `isinstance(x, Class)` and `issubclass(x, (Class, Other))`."""
    parent = source.parents[node]
    parent = source.parents[parent] if isinstance(parent, ast.Tuple) else parent
    return isinstance(parent, ast.Call) and getattr(parent.func, "id", "") in ("isinstance", "issubclass")


def find_argument(call: ast.Call, name: str, position: int = -1) -> ast.expr | None:
    """Return an argument passed by keyword or position (-1: keyword only); None if absent or passed by * or **."""
    by_keyword = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
    if by_keyword is not None or not 0 <= position < len(call.args):
        return by_keyword
    # A * argument before it may stand for any number of arguments.
    is_hidden = any(isinstance(value, ast.Starred) for value in call.args[: position + 1])
    return None if is_hidden else call.args[position]


def imported_modules(node: ast.AST) -> list[str]:
    """Return the modules that an import statement names; none for a relative import and for any other node."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []


def is_in_torch_program(site: Site) -> bool:
    """Return True if the file belongs to a PyTorch program, even if it does not import torch itself."""
    from viaduct.migration.frameworks import TORCH

    project = site.file.project
    return bool(project.torch_files) and project.uses_rules_of(TORCH, site.file.path)
