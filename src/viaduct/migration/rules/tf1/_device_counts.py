"""Test whether a script counts the devices that TensorFlow lists. Not a rule."""

from __future__ import annotations

import ast

from viaduct.migration.rule import Site
from viaduct.migration.rules.tf1._optimizers import loads

LISTING = "tensorflow.python.client.device_lib.list_local_devices"
SHOWN = ("print", "info", "debug", "warning", "log")


def is_counted(site: Site) -> bool:
    """Return True for a list of devices that decides how often something is done: towers, shards, a batch size.

    No accelerator is among the GPUs, so a loop over them would run zero times. list_local_devices() counts unless one
    of its uses prints or logs it; of any other call the number counts only where len() is taken of its result.
    """
    listed = [site.node, *uses_of(site, site.node)]
    if site.name == LISTING:
        return not any(is_shown(site, node) for node in listed)
    return any(is_measured(site, node) for node in listed)


def uses_of(site: Site, node: ast.expr) -> list[ast.expr]:
    """Return the reads of the variable that a value is assigned to."""
    parent = site.source.parents[node]
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name):
        return list(loads(site, parent.targets[0]))
    return []


def is_shown(site: Site, node: ast.expr) -> bool:
    parent = site.source.parents[node]
    called = parent.func if isinstance(parent, ast.Call) else None
    return getattr(called, "attr", getattr(called, "id", "")) in SHOWN


def is_measured(site: Site, node: ast.expr) -> bool:
    parent = site.source.parents[node]
    return isinstance(parent, ast.Call) and getattr(parent.func, "id", "") == "len"
