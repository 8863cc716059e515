"""Test whether a script counts the devices that TensorFlow lists. Not a rule: mlu_report and unsupported_api use it."""

from __future__ import annotations

import ast

from viaduct.migration.lookups import assigned_name, last_name
from viaduct.migration.rule import Site
from viaduct.migration.rules.tf1._optimizers import find_reads

LIST_LOCAL_DEVICES = "tensorflow.python.client.device_lib.list_local_devices"
PRINTING_FUNCTIONS = ("print", "info", "debug", "warning", "log")


def counts_devices(site: Site) -> bool:
    """Return True if the site's list of devices decides how often something is done: towers, shards, a batch size.

    No accelerator is among the GPUs, so a loop over them would run zero times. list_local_devices() is taken to be
    counted unless one of its uses prints or logs it; any other list only if len() is taken of it.
    """
    listed = [site.node, *uses_of(site, site.node)]
    if site.name == LIST_LOCAL_DEVICES:
        return not any(is_argument_of(site, node, PRINTING_FUNCTIONS) for node in listed)
    return any(is_argument_of(site, node, ("len",)) for node in listed)


def uses_of(site: Site, node: ast.expr) -> list[ast.expr]:
    """Return the reads of the variable that a value is assigned to."""
    variable = assigned_name(site, node)
    return list(find_reads(site, variable)) if variable is not None else []


def is_argument_of(site: Site, node: ast.expr, functions: tuple[str, ...]) -> bool:
    """Return True for a positional argument of a function or method with one of these names."""
    parent = site.source.parents[node]
    return isinstance(parent, ast.Call) and last_name(parent.func) in functions
