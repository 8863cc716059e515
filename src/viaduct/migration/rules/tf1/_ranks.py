"""Rank and number of ranks in a migrated script. Not a rule: sharding, Horovod and hooks share it.

hccl answers only once communication has been started. Code that runs before that, and scripts migrated without
`--distributed`, read the environment, with the values of a single process as defaults.
"""

from __future__ import annotations

import ast

from viaduct.cards import NPU
from viaduct.cards.tensorflow_api import RANKS, full_name
from viaduct.migration.names import Comprehension
from viaduct.migration.rule import Site
from viaduct.migration.rules.tf1 import _config_proto as proto
from viaduct.migration.rules.tf1 import _entry

HCCL = {
    "size": "get_rank_size",
    "rank": "get_rank_id",
    "local_size": "get_local_rank_size",
    "local_rank": "get_local_rank_id",
}
HELPERS = {
    "size": "get_npu_rank_size",
    "rank": "get_npu_rank_id",
    "local_size": "get_npu_local_rank_size",
    "local_rank": "get_npu_local_rank_id",
}
VARIABLES = {"size": ("RANK_SIZE", "1"), "rank": ("RANK_ID", "0"), "local_rank": ("DEVICE_ID", "0")}
RANK_CALLS = {
    *(f"{RANKS}.{name}" for name in HCCL.values()),
    *(full_name(name) for name in HELPERS.values()),
}


def expression(site: Site, node: ast.AST, what: str) -> str | None:
    """Return `get_rank_id()` or `int(os.getenv("RANK_ID", "0"))`.

    None for local_size where hccl cannot be asked: no environment variable holds it.
    """
    if asks_hccl(site, node):
        return f"{function(site, what)}()"
    return from_environment(site, what) if what in VARIABLES else None


def function(site: Site, what: str) -> str:
    """Return the local name of hccl's function, or of the vendor's helper with `--style wrapper`."""
    return site.need(HELPERS[what] if site.options.style == "wrapper" else HCCL[what])


def asks_hccl(site: Site, node: ast.AST) -> bool:
    return site.options.distributed and site.options.rank == NPU.backend and not runs_early(site, node)


def from_environment(site: Site, what: str) -> str:
    variable, default = VARIABLES[what]
    return f'int({proto.module_name(site, "os")}.getenv("{variable}", "{default}"))'


def runs_early(site: Site, node: ast.AST) -> bool:
    """Return True if a node runs before main, or the main guard, can have started communication."""
    scope = site.work.names.scope_of(node)
    while isinstance(scope.node, ast.ClassDef | Comprehension) and scope.outer is not None:
        scope = scope.outer
    if not isinstance(scope.node, ast.Module):
        return False
    if _entry.main_function(site) is not None:
        return True
    guard = _entry.main_guard(site)
    if guard is None and site.work.project.importers.get(site.work.path):
        return True  # a module that the started script imports
    return guard is not None and guard not in site.source.ancestors(node)


def is_rank_call(site: Site, node: ast.AST) -> bool:
    """Return True if a value comes from hccl, a helper of npu_init, or the variable RANK_SIZE or RANK_ID."""
    for inner in ast.walk(site.values.origin(node)):
        if isinstance(inner, ast.Call) and site.qualified(inner.func) in RANK_CALLS:
            return True
        if isinstance(inner, ast.Constant) and inner.value in ("RANK_SIZE", "RANK_ID"):
            return True
    return False
