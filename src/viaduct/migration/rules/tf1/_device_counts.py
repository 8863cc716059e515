"""Find out whether a script counts the devices in a list of TensorFlow, as in `len(list_physical_devices("GPU"))`.

`site` is the call that returns the list.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import assigned_name, called_name, find_reads
from viaduct.migration.rule import Site

LIST_LOCAL_DEVICES = "tensorflow.python.client.device_lib.list_local_devices"
PRINTING_FUNCTIONS = ("print", "info", "debug", "warning", "log")


def counts_devices(site: Site) -> bool:
    """Return True if the script counts the devices in the list, for towers, shards or a batch size.

    A list that list_local_devices() returns is taken as counted unless the script prints or logs it. Any other list is
    counted if it is an argument of len().
    """
    uses = [site.node, *list_uses(site, site.node)]
    if site.name == LIST_LOCAL_DEVICES:
        return not any(is_argument_of(site, node, PRINTING_FUNCTIONS) for node in uses)
    return any(is_argument_of(site, node, ("len",)) for node in uses)


def list_uses(site: Site, node: ast.expr) -> list[ast.expr]:
    """Return the reads of the variable that a value is assigned to."""
    variable = assigned_name(site, node)
    return list(find_reads(site, variable)) if variable is not None else []


def is_argument_of(site: Site, node: ast.expr, functions: tuple[str, ...]) -> bool:
    """Return True for a positional argument of a function or method with one of these names."""
    return called_name(site.source.parents[node]) in functions
