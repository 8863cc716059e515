"""Questions about one syntax node that several modules ask."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, TypeGuard

from viaduct.migration.frameworks import TORCH

if TYPE_CHECKING:
    from viaduct.migration.rule import Site


def is_none(node: object) -> bool:
    """Return True for the literal None."""
    return isinstance(node, ast.Constant) and node.value is None


def is_none_or_absent(node: ast.AST | None) -> bool:
    """Return True for the literal None and for an argument that is not given."""
    return node is None or is_none(node)


def is_literal(node: ast.AST | None) -> TypeGuard[ast.Constant]:
    """Return True for a literal of any kind."""
    return isinstance(node, ast.Constant)


def is_constant(node: ast.AST | None, value: object) -> bool:
    """Return True for the literal of this very value: True, False or None."""
    return isinstance(node, ast.Constant) and node.value is value


def is_string(node: ast.AST | None) -> bool:
    """Return True for a string literal."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def is_text(node: ast.AST | None, *texts: object) -> bool:
    """Return True for a literal that equals one of these."""
    return isinstance(node, ast.Constant) and node.value in texts


def imports_torch(site: Site) -> bool:
    """Return True in a file of a PyTorch program, whether or not it imports torch itself."""
    project = site.work.project
    return bool(project.torch_files) and project.is_for(TORCH, site.work.path)
