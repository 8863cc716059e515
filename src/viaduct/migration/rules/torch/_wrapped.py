"""Models within DataParallel: where they are wrapped, under which name, and where `.module` reaches through.

Not a rule: data_parallel and data_parallel_ddp share it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from viaduct.migration.rule import Site

DDP = (
    "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.parallel.distributed.DistributedDataParallel",
)


DATA_PARALLEL = (
    "torch.nn.DataParallel",
    "torch.nn.parallel.DataParallel",
    "torch.nn.parallel.data_parallel.DataParallel",
)
DISTRIBUTED = (
    "torch.distributed.init_process_group",
    "torch.nn.parallel.DistributedDataParallel",
    "torch.multiprocessing.spawn",
)
FUNCTIONAL = "torch.nn.parallel.data_parallel"
# Functions that DataParallel is made of, for scripts that build their own.
PARTS = (
    *(f"torch.nn.parallel.{name}" for name in ("replicate", "scatter", "gather", "parallel_apply")),
    *(f"torch.nn.parallel.scatter_gather.{name}" for name in ("scatter", "scatter_kwargs", "gather")),
    *("torch.nn.parallel.replicate.replicate", "torch.nn.parallel.parallel_apply.parallel_apply"),
)


def wraps(site: Site) -> Iterator[ast.Call]:
    """Yield the calls that wrap a model, in the order of the text."""
    found = [call for name in DATA_PARALLEL for call in site.work.index.calls.get(name, [])]
    yield from sorted(found, key=lambda call: site.source.places[call])


def model_of(call: ast.Call) -> ast.expr | None:
    """Return the model that a call wraps; None if it cannot be seen."""
    if call.args:
        return None if isinstance(call.args[0], ast.Starred) else call.args[0]
    return next((keyword.value for keyword in call.keywords if keyword.arg == "module"), None)


def target_of(site: Site, call: ast.Call) -> ast.expr | None:
    """`model` of `model = DataParallel(…)`, also of `model = DataParallel(…).cuda()`."""
    statement = site.source.statement(call)
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        return statement.targets[0]
    return statement.target if isinstance(statement, ast.AnnAssign) else None


def distributed_calls(site: Site) -> list[ast.Call]:
    """Return the calls that start processes or a process group, or wrap a model in DistributedDataParallel."""
    return [call for name in DISTRIBUTED for call in site.work.index.calls.get(name, [])]


def targets(site: Site, calls: Iterable[ast.Call]) -> set[str]:
    """Return the names that wrapped models are assigned to."""
    return {ast.unparse(target) for call in calls if (target := target_of(site, call)) is not None}


def module_accesses(site: Site) -> Iterator[tuple[ast.Attribute, bool]]:
    """Yield every `x.module`, with True if x is the name of a model that is wrapped in this file."""
    wrapped = targets(site, wraps(site)) - targets(site, distributed_calls(site))
    for node in site.source.of_kind(ast.Attribute):
        if isinstance(node, ast.Attribute) and node.attr == "module" and site.qualified(node) is None:
            yield node, ast.unparse(node.value) in wrapped


def is_guarded(site: Site, node: ast.AST) -> bool:
    """Return True under a condition with `hasattr` or `DataParallel` in it.

    `m.module if hasattr(m, "module") else m` is an example.
    """
    tests = (parent.test for parent in site.source.ancestors(node) if isinstance(parent, ast.If | ast.IfExp))
    return any("hasattr" in ast.unparse(test) or "DataParallel" in ast.unparse(test) for test in tests)
