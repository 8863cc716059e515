"""Names that stand in annotations. Not a rule."""

from __future__ import annotations

import ast

from viaduct.migration.source import Source


def is_in_annotation(source: Source, node: ast.AST) -> bool:
    """Return True for `scaler: Optional[GradScaler] = …` and `-> GradScaler`, not for the value behind the former."""
    child = node
    for parent in source.ancestors(node):
        held = getattr(parent, "annotation", None) or getattr(parent, "returns", None)
        if held is child:
            return True
        if isinstance(parent, ast.stmt):
            return False
        child = parent
    return False
