"""Uses of the card in a file, for which it needs the import of the plug-in (torch_npu or torch_mlu)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.migration.lookups import literal_text
from viaduct.migration.predicates import imported_modules
from viaduct.migration.rule import Site


def is_plugin_imported_elsewhere(site: Site) -> bool:
    """Return True if another file of the project imports the plug-in; a comment does not count."""
    project, plugin = site.file.project, site.target.card.plugin
    statements = (
        statement
        for path in project.files_containing(f"import {plugin}") - {site.file.path}
        for statement in project.parsed[path].source.imports
    )
    return any(name.partition(".")[0] == plugin for item in statements for name in imported_modules(item))


def uses_card(site: Site) -> bool:
    """Return True if a rule requested the plug-in's import, or the file uses the card."""
    return site.target.card.plugin in site.file.side_effect_imports or any(True for _ in find_card_uses(site))


def find_card_uses(site: Site) -> Iterator[ast.AST]:
    """Yield the nodes that need the plug-in: its module, its methods and attributes, its device strings."""
    card = site.target.card
    for name in (card.device, card.tensor_flag, card.profiler_activity):
        yield from site.source.attributes.get(name, ())
    yield from (node for node in site.source.nodes_of_type(ast.Name) if node.id == card.plugin)
    for node in site.source.nodes_of_type(ast.Constant):
        is_docstring = isinstance(site.source.parents[node], ast.Expr)
        if literal_text(node).partition(":")[0] == card.device and not is_docstring:
            yield node
