"""Uses of the old tensor types, such as torch.cuda.FloatTensor: in comparisons, or as the default type."""

from __future__ import annotations

import ast
import re

from viaduct.migration.lookups import is_within_call, plain_name
from viaduct.migration.rule import Site

CUDA_NAME = re.compile(r"torch\.cuda(?:\.(?P<member>\w+(?:\.\w+)*))?")  # `torch.cuda`, `torch.cuda.FloatTensor`
SET_DEFAULT_TYPE = "torch.set_default_tensor_type"


def is_compared(site: Site, node: ast.AST) -> bool:
    """Return True for a type that is only compared, directly or as a variable's value: `isinstance(x, T)`."""
    outermost = find_outermost_collection(site, node)
    return is_in_comparison(site, outermost) or is_variable_only_compared(site, outermost)


def find_outermost_collection(site: Site, node: ast.AST) -> ast.AST:
    """Return the outermost tuple, list, set or union (`A | B`) around a node; the node itself if there is none."""
    parent = site.source.parents.get(node)
    while isinstance(parent, ast.Tuple | ast.List | ast.Set | ast.BinOp):
        node, parent = parent, site.source.parents.get(parent)
    return node


def is_in_comparison(site: Site, node: ast.AST) -> bool:
    """Return True for a type in isinstance, issubclass or a comparison."""
    parent = site.source.parents.get(node)
    if isinstance(parent, ast.Call):
        return plain_name(parent.func) in ("isinstance", "issubclass") and node in parent.args[1:]
    return isinstance(parent, ast.Compare)


def is_variable_only_compared(site: Site, node: ast.AST) -> bool:
    """Return True for the value of a variable that is only read in comparisons."""
    statement = site.source.parents.get(node)
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    reads = site.source.reads.get(plain_name(statement.targets[0]), [])
    return bool(reads) and all(is_in_comparison(site, find_outermost_collection(site, read)) for read in reads)


def is_in_set_default_tensor_type(site: Site, node: ast.AST) -> bool:
    """Return True for a type in set_default_tensor_type(…)."""
    return is_within_call(site, node, (SET_DEFAULT_TYPE,))


def is_type_call(node: ast.expr) -> bool:
    """Return True for `x.type()`, which returns the name of a tensor's type."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "type"
