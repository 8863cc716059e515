"""Models in DataParallel: the calls that wrap them, the variables of the results, and the uses of `.module`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from viaduct.migration.lookups import calls_to, keyword_value, sole_target
from viaduct.migration.rule import Site

DISTRIBUTED_DATA_PARALLEL = (
    "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.parallel.distributed.DistributedDataParallel",
)
DATA_PARALLEL = (
    "torch.nn.DataParallel",
    "torch.nn.parallel.DataParallel",
    "torch.nn.parallel.data_parallel.DataParallel",
)
DISTRIBUTED_CALLS = ("torch.distributed.init_process_group", *DISTRIBUTED_DATA_PARALLEL, "torch.multiprocessing.spawn")
DATA_PARALLEL_FUNCTION = "torch.nn.parallel.data_parallel"
# The functions that DataParallel calls in a forward pass.
DATA_PARALLEL_PARTS = (
    *(f"torch.nn.parallel.{name}" for name in ("replicate", "scatter", "gather", "parallel_apply")),
    *(f"torch.nn.parallel.scatter_gather.{name}" for name in ("scatter", "scatter_kwargs", "gather")),
    "torch.nn.parallel.replicate.replicate",
    "torch.nn.parallel.parallel_apply.parallel_apply",
)


def find_wrapping_calls(site: Site) -> list[ast.Call]:
    """Return the calls that wrap a model in DataParallel, in the order of the text."""
    return sorted(calls_to(site, DATA_PARALLEL), key=lambda call: site.source.positions[call])


def find_distributed_calls(site: Site) -> list[ast.Call]:
    """Return the calls that start processes or a process group, or wrap a model in DistributedDataParallel."""
    return calls_to(site, DISTRIBUTED_CALLS)


def get_wrapped_model(call: ast.Call) -> ast.expr | None:
    """Return the model that a call wraps; None if the arguments do not show it."""
    if call.args:
        return None if isinstance(call.args[0], ast.Starred) else call.args[0]
    return keyword_value(call, "module")


def get_assigned_target(site: Site, call: ast.Call) -> ast.expr | None:
    """Return `model` for `model = DataParallel(…)` and `model = DataParallel(…).cuda()`; None for several targets."""
    return sole_target(site.source.statement_around(call))


def get_assigned_names(site: Site, calls: Iterable[ast.Call]) -> set[str]:
    """Return the targets to which the results are assigned, such as `self.model`, as texts."""
    return {ast.unparse(target) for call in calls if (target := get_assigned_target(site, call)) is not None}


def find_module_accesses(site: Site) -> Iterator[tuple[ast.Attribute, bool]]:
    """Yield each `x.module` that is no name of an imported package.

    With it comes True if this file wraps x in DataParallel and not in DistributedDataParallel.
    """
    wrapped = get_assigned_names(site, find_wrapping_calls(site)) - get_assigned_names(
        site, find_distributed_calls(site)
    )
    for node in site.source.nodes_of_type(ast.Attribute):
        if node.attr == "module" and site.qualified_name(node) is None:
            yield node, ast.unparse(node.value) in wrapped


def is_under_wrapper_test(site: Site, node: ast.AST) -> bool:
    """Return True under a condition with hasattr or DataParallel: `m.module if hasattr(m, "module") else m`."""
    conditions = (parent for parent in site.source.ancestors(node) if isinstance(parent, ast.If | ast.IfExp))
    tests = (ast.unparse(condition.test) for condition in conditions)
    return any("hasattr" in test or "DataParallel" in test for test in tests)
