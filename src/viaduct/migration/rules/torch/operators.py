"""Report operators that the vendor documents as missing or limited.

For instance, the NPU's table for torch 2.6 has `grid_sample` and `scatter_reduce` as unsupported, and no `kthvalue` for
int64. A finding names the table it comes from; where a newer release is used, that is the place to look. What works on
the host is left out: datasets, tensors that stay on the CPU, tests and setup.py. A project gets one note for each
operator, with the count and the first places (`migration/operator_notes.py`); what stops a run comes first.
"""

from __future__ import annotations

import ast
import re

from viaduct.cards import Card
from viaduct.cards.operators import METHODS, OPERATORS, SOURCE, Limit
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._places import place_of, within_dataset
from viaduct.migration.targets import cards

rule = Rule(__name__, spec="5 6", kind="report", targets=("npu", "mlu", "any"), patch=True, everywhere=True, last=True)

HOST_FILE = re.compile(r"(?:^|/)(?:tests?/|test_[^/]*\.py$|[^/]*_test\.py$|conftest\.py$|setup\.py$)")
NAMES = sorted({f"torch.{name}" for table in OPERATORS.values() for name in table})


@rule.call(*NAMES)
def function(site: Site) -> None:
    """Report a function of torch that the vendor documents as missing or limited."""
    if not is_on_host(site, site.node.args[:1]):
        report_limits(site, site.name[len("torch.") :])


@rule.method(*METHODS)
def method(site: Site) -> None:
    """Report a method of something that no other library made."""
    name = site.values.names.qualified(site.node.func) or ""
    other = name.partition(".")[0] in ("pandas", "numpy", "scipy", "polars", "tensorflow")
    if not other and not is_on_host(site, [site.node.func.value]):
        report_limits(site, site.name)


def is_on_host(site: Site, values: list[ast.expr]) -> bool:
    """Return True in a test or a dataset, and for a tensor that is seen to be on the CPU."""
    if HOST_FILE.search(site.work.path) or within_dataset(site, site.node):
        return True
    return bool(values) and place_of(site, values[0]) == "cpu" and not values_move(site)


def values_move(site: Site) -> bool:
    """Return True if the file sets a default device: then nothing that is made without one is on the CPU."""
    return any(name in site.work.index.calls for name in ("torch.set_default_device", "torch.set_default_tensor_type"))


def report_limits(site: Site, name: str) -> None:
    """Report the limits of one operator on every target."""
    for target in cards(site.options):
        limit = OPERATORS[target.name].get(name)
        if limit is not None and is_concerned(site, limit):
            report(site, target, name, limit)


def is_concerned(site: Site, limit: Limit) -> bool:
    """Return True if a limit applies: one of a keyword does where that is given, and not as False or None.

    The limit of `sorted` applies to sorted=False.
    """
    if not limit.keyword:
        return True
    given = site.keyword(limit.keyword)
    if given is None or not isinstance(given.value, ast.Constant):
        return given is not None
    off = given.value.value in (False, None)
    return not off if limit.keyword != "sorted" else given.value.value is False


def report(site: Site, target: Card, name: str, limit: Limit) -> None:
    """Report one limit with the table that it comes from."""
    table, table_zh = SOURCE[target.name]
    site.manual(
        f"{name} on the {target.title}: {limit.english} ({table}); see your release, or keep it on the CPU",
        zh=f"{target.title} 上的 {name}:{limit.chinese}({table_zh});请核对所用版本,或放在 CPU 上计算",
        risk=limit.risk,
    )
