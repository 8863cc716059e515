"""Code for the rank and the number of ranks: `get_rank_id()`, or `int(os.getenv("RANK_ID", "0"))`.

hccl, the NPU's library of collectives, knows the ranks only after communication was started. Code that runs before, and
scripts migrated without `--distributed`, read the environment.
"""

from __future__ import annotations

import ast

from viaduct.cards import NPU
from viaduct.cards.tensorflow_api import HCCL_API, full_name
from viaduct.migration.names import Comprehension
from viaduct.migration.rule import Site
from viaduct.migration.rules import _entry
from viaduct.migration.rules.tf1._tensorflow_names import import_module

# Quantity -> function of hccl.
HCCL_FUNCTIONS = {
    "size": "get_rank_size",
    "rank": "get_rank_id",
    "local_size": "get_local_rank_size",
    "local_rank": "get_local_rank_id",
}
# Quantity -> helper of npu_init with the same result.
VENDOR_HELPERS = {quantity: name.replace("get_", "get_npu_") for quantity, name in HCCL_FUNCTIONS.items()}
# Quantity -> environment variable that the start script sets to it, and its value in a run of one process.
ENVIRONMENT = {"size": ("RANK_SIZE", "1"), "rank": ("RANK_ID", "0"), "local_rank": ("DEVICE_ID", "0")}
RANK_CALLS = {
    *(f"{HCCL_API}.{name}" for name in HCCL_FUNCTIONS.values()),
    *(full_name(name) for name in VENDOR_HELPERS.values()),
}


def render_rank_quantity(site: Site, node: ast.AST, quantity: str) -> str | None:
    """Return the code of a quantity at a node; None for local_size if only the environment can be read."""
    if can_ask_hccl(site, node):
        return f"{import_rank_function(site, quantity)}()"
    return render_environment(site, quantity) if quantity in ENVIRONMENT else None


def import_rank_function(site: Site, quantity: str) -> str:
    """Import hccl's function for a quantity, with `--style wrapper` Ascend's helper; return its local name."""
    return site.import_npu_name(
        VENDOR_HELPERS[quantity] if site.options.style == "wrapper" else HCCL_FUNCTIONS[quantity]
    )


def can_ask_hccl(site: Site, node: ast.AST) -> bool:
    """Return True if communication is started before this node runs, and the options choose hccl."""
    return site.options.distributed and site.options.rank == NPU.backend and not runs_before_main(site, node)


def render_environment(site: Site, quantity: str) -> str:
    variable, default = ENVIRONMENT[quantity]
    return f'int({import_module(site, "os")}.getenv("{variable}", "{default}"))'


def runs_before_main(site: Site, node: ast.AST) -> bool:
    """Return True if a node runs at module level before communication is started.

    Communication is started in the main function, under the main guard, or in the script that imports this file.
    """
    scope = site.file.names.scope_of(node)
    while isinstance(scope.node, ast.ClassDef | Comprehension) and scope.outer is not None:
        scope = scope.outer
    if not isinstance(scope.node, ast.Module):
        return False
    if _entry.find_main_function(site) is not None:
        return True
    guard = _entry.find_main_guard(site)
    if guard is None and site.file.project.importers.get(site.file.path):
        return True  # the started script imports this module
    return guard is not None and guard not in site.source.ancestors(node)


def is_rank_call(site: Site, node: ast.AST) -> bool:
    """Return True if a value comes from hccl, a helper of npu_init, or the variable RANK_SIZE or RANK_ID."""
    for inner in ast.walk(site.values.assigned_value(node)):
        if isinstance(inner, ast.Call) and site.qualified_name(inner.func) in RANK_CALLS:
            return True
        if isinstance(inner, ast.Constant) and inner.value in ("RANK_SIZE", "RANK_ID"):
            return True
    return False
