"""Texts of CUDA devices in comparisons, within `torch.device("cuda:0")`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.migration.device_texts import device_literal
from viaduct.migration.lookups import branches, elements, plain_name
from viaduct.migration.rule import Site


def find_constructor_texts(site: Site) -> Iterator[ast.expr]:
    """Yield the CUDA texts within torch.device(…) in all comparisons of a file."""
    for node in site.source.nodes_of_type(ast.Compare):
        for side in (node.left, *node.comparators):
            yield from constructor_texts(site, side)


def constructor_texts(site: Site, side: ast.expr) -> Iterator[ast.expr]:
    """Yield the CUDA texts within `torch.device("cuda:0")`, also in a tuple, in str() or in a branch."""
    parts = [part for branch in branches(side) for part in elements(branch)]
    if isinstance(side, ast.Call) and plain_name(side.func) == "str":
        parts = side.args[:1]
    if parts != [side]:  # the side is a tuple, str() or a conditional expression
        for part in parts:
            yield from constructor_texts(site, part)
    elif isinstance(side, ast.Call) and site.qualified_name(side.func) == "torch.device":
        values = [*side.args[:1], *(keyword.value for keyword in side.keywords)]
        yield from (text for value in values for text in branches(value) if device_literal(text) is not None)
