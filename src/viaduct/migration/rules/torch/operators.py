"""Say what the vendor documents of operators that are missing or limited.

For instance, the NPU's table for torch 2.6 has `grid_sample` and `scatter_reduce` as unsupported, and no `kthvalue` for
int64. A finding names the table it comes from; where a newer release is used, that is the place to look.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._operators import METHODS, OPERATORS, SOURCE, Limit
from viaduct.migration.rules.torch._targets import Card, cards

rule = Rule(__name__, spec="5 6", kind="report", targets=("npu", "mlu", "any"), order=92, patch=True)

NAMES = sorted({f"torch.{name}" for table in OPERATORS.values() for name in table})


@rule.call(*NAMES)
def function(site: Site) -> None:
    look(site, site.name[len("torch.") :])


@rule.method(*METHODS)
def method(site: Site) -> None:
    """Of something that no other library made."""
    name = site.values.names.qualified(site.node.func) or ""
    if name.partition(".")[0] not in ("pandas", "numpy", "scipy", "polars", "tensorflow"):
        look(site, site.name)


def look(site: Site, name: str) -> None:
    for target in cards(site.options):
        limit = OPERATORS[target.name].get(name)
        if limit is not None and concerned(site, limit):
            report(site, target, name, limit)


def concerned(site: Site, limit: Limit) -> bool:
    """A limit of one argument speaks only where it is given, and not given as False."""
    if not limit.keyword:
        return True
    given = site.keyword(limit.keyword)
    if given is None or not isinstance(given.value, ast.Constant):
        return given is not None
    off = given.value.value in (False, None)
    return not off if limit.keyword != "sorted" else given.value.value is False


def report(site: Site, target: Card, name: str, limit: Limit) -> None:
    table, table_zh = SOURCE[target.name]
    site.manual(
        f"{name} on the {target.title}: {limit.english} ({table}); see your release, or keep it on the CPU",
        zh=f"{target.title} 上的 {name}:{limit.chinese}({table_zh});请核对所用版本,或放在 CPU 上计算",
        risk=limit.risk,
    )
