"""Questions whether a module is there: `hvd is None`, `if not hvd`. Not a rule: the Horovod rules share it.

Such a question uses nothing of the module itself, so `True` can stand in the module's place.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import PurePosixPath

from viaduct.migration import module_flow
from viaduct.migration.rule import Site


def is_question(site: Site, name: ast.Name) -> bool:
    return module_flow.is_only_tested(site.source, name)


def borrowers(site: Site, name: str) -> Iterator[str]:
    """Yield the other files of the project that import or read the name from this one."""
    module = PurePosixPath(site.work.path).stem
    for path, names in site.work.project.parsed.items():
        if path != site.work.path and any(takes(node, module, name) for node in names.source.nodes):
            yield path


def takes(node: ast.AST, module: str, name: str) -> bool:
    """Return True for `from module import name`, or `module.name`."""
    if isinstance(node, ast.ImportFrom):
        named = any(alias.name == name for alias in node.names)
        return named and (node.module or "").rpartition(".")[2] == module
    of = node.value if isinstance(node, ast.Attribute) and node.attr == name else None
    return isinstance(of, ast.Name | ast.Attribute) and ast.unparse(of).rpartition(".")[2] == module
