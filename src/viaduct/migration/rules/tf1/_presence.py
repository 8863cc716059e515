"""Other files of the project that import a name from this file, or read it through this module.

Not a rule: horovod_import uses it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import PurePosixPath

from viaduct.migration.lookups import last_name
from viaduct.migration.rule import Site


def importing_files(site: Site, name: str) -> Iterator[str]:
    """Yield the other files of the project that import or read the name from this one."""
    module = PurePosixPath(site.work.path).stem
    for path, names in site.work.project.parsed.items():
        if path != site.work.path and any(is_taken_by(node, module, name) for node in names.source.nodes):
            yield path


def is_taken_by(node: ast.AST, module: str, name: str) -> bool:
    """Return True for `from module import name` and for `module.name`, if `module` ends a dotted name too."""
    if isinstance(node, ast.ImportFrom):
        named = any(alias.name == name for alias in node.names)
        return named and (node.module or "").rpartition(".")[2] == module
    return isinstance(node, ast.Attribute) and node.attr == name and last_name(node.value) == module
