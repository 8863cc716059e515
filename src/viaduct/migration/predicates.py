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
    """Return True for an ast.Constant: string, bytes, unsigned number, True, False, None, `...`."""
    return isinstance(node, ast.Constant)


def is_constant(node: ast.AST | None, value: object) -> bool:
    """Return True for the literal True, False or None that `value` is; compared by identity."""
    return isinstance(node, ast.Constant) and node.value is value


def is_string(node: ast.AST | None) -> bool:
    """Return True for a string literal."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def is_literal_in(node: ast.AST | None, *values: object) -> bool:
    """Return True for a literal that equals one of these values."""
    return isinstance(node, ast.Constant) and node.value in values


def is_in_torch_program(site: Site) -> bool:
    """Return True if the file belongs to a PyTorch program, even if it does not import torch itself."""
    project = site.work.project
    return bool(project.torch_files) and project.is_for(TORCH, site.work.path)
