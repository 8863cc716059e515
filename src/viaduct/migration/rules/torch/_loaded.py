"""Device on which the content of torch.load and torch.jit.load is used; `site` is the load."""

from __future__ import annotations

import ast
from typing import Literal

from viaduct.migration.flows import FileFlow, Use
from viaduct.migration.predicates import is_string
from viaduct.migration.rule import Site, cache_per_file
from viaduct.migration.rules.torch._locations import is_in_dataset

Destination = Literal["host", "card", "unneeded", "unknown"]
DEVICE_CALLS = ("torch.device", "torch.accelerator.current_accelerator", "torch.get_default_device")


@cache_per_file
def get_flow(site: Site) -> FileFlow:
    """Return the flow of values in the file of a site."""
    return FileFlow(site.file.names, site.file.project)


def find_load_destination(site: Site) -> Destination:
    """Return where a load without map_location must put its content; "unneeded" if it needs no map_location.

    Weights for load_state_dict are loaded on the host; complete networks, and values that are moved later, on the card.
    Other values that are used on the host need no map_location. A value without any known use is loaded on the host;
    one whose uses do not show the place is "unknown". If no code that gets the value mentions devices, weights are
    loaded on the host, and all other content needs no map_location.
    """
    flow = get_flow(site)
    uses = flow.find_uses([site.node])
    if Use.STATE in uses and Use.NETWORK not in uses:
        return "host"
    if not flow.mentions_devices and Use.NEAR_DEVICES not in uses:
        return "host" if Use.STATE in uses else "unneeded"
    if Use.NETWORK in uses or site.name == "torch.jit.load":
        return "card"
    if Use.HOST in uses or is_in_dataset(site, site.node):
        return "unneeded"
    if Use.MOVED in uses:
        return "card"
    return "unknown" if uses - {Use.NEAR_DEVICES} else "host"


def find_device_variable(site: Site) -> str | None:
    """Return `device`, `DEVICE` or `dev` if such a variable holds a device at the load, else None."""
    names, scope = site.file.names, site.file.names.scope_of(site.node)
    module_bindings = names.scopes[site.source.tree].bindings
    for name in ("device", "DEVICE", "dev"):
        bindings = names.lookup(name, scope)
        if bindings and all(isinstance(value, ast.expr) and is_device_value(site, value) for value in bindings):
            last_line = max(value.lineno for value in bindings if isinstance(value, ast.expr))
            is_global_in_function = bindings is module_bindings.get(name) and site.source.function_around(site.node)
            if is_global_in_function or last_line < site.node.lineno:
                return name
    return None


def is_device_value(site: Site, value: ast.expr) -> bool:
    """Return True for `torch.device(…)`, a function of torch that returns a device, or any string, in all branches."""
    if isinstance(value, ast.IfExp):
        return is_device_value(site, value.body) and is_device_value(site, value.orelse)
    if isinstance(value, ast.BoolOp):
        return all(is_device_value(site, part) for part in value.values)
    if isinstance(value, ast.Call):
        return site.qualified_name(value.func) in DEVICE_CALLS
    return is_string(value)
