"""Report operators that the vendor documents as missing or limited.

For instance, the NPU's table for torch 2.6 lists `grid_sample` and `scatter_reduce` as unsupported, and no `kthvalue`
for int64. A finding names its table. Code that runs on the host is not reported: datasets, tensors that stay on the
CPU, tests and setup.py. Only operators that are common in training are checked. A project gets one note for each
operator (`migration/operator_notes.py`).
"""

from __future__ import annotations

import ast
import re

from viaduct.cards.operators import OPERATORS, SOURCES, TENSOR_METHODS, OperatorLimit
from viaduct.migration.rule import Site, make_rule_on_migrated_code
from viaduct.migration.rules.torch._locations import find_location, is_in_dataset

rule = make_rule_on_migrated_code(
    __name__, target_needs="torch_functions", spec_rows=("5", "6"), visits_lines_left_alone=True
)

HOST_FILE = re.compile(r"(?:^|/)(?:tests?/|test_[^/]*\.py$|[^/]*_test\.py$|conftest\.py$|setup\.py$)")
OTHER_LIBRARIES = ("pandas", "numpy", "scipy", "polars", "tensorflow")
DEFAULT_SETTERS = ("torch.set_default_device", "torch.set_default_tensor_type")
OPERATOR_NAMES = sorted({f"torch.{name}" for table in OPERATORS.values() for name in table})


@rule.call(*OPERATOR_NAMES)
def report_function(site: Site) -> None:
    """Report a function of torch that the vendor documents as missing or limited."""
    if not is_on_host(site, site.node.args[:1]):
        report_limits(site, site.name[len("torch.") :])


@rule.method(*TENSOR_METHODS)
def report_method(site: Site) -> None:
    """Report a method that the vendor documents as missing or limited, unless another library's object has it."""
    name = site.qualified_name(site.node.func) or ""
    if name.partition(".")[0] not in OTHER_LIBRARIES and not is_on_host(site, [site.node.func.value]):
        report_limits(site, site.name)


def is_on_host(site: Site, values: list[ast.expr]) -> bool:
    """Return True in a test or a dataset, and for a tensor that is known to be on the CPU."""
    if HOST_FILE.search(site.file.path) or is_in_dataset(site, site.node):
        return True
    sets_default = any(name in site.file.index.calls for name in DEFAULT_SETTERS)  # of the device of new tensors
    return bool(values) and find_location(site, values[0]) == "cpu" and not sets_default


def report_limits(site: Site, name: str) -> None:
    for card in site.cards:
        limit = OPERATORS[card.name].get(name)
        if limit is not None and is_limited(site, limit):
            table, table_zh = SOURCES[card.name]
            site.request_review(
                f"{name} on the {card.title}: {limit.english} ({table}); check your release, or run it on the CPU",
                zh=f"{card.title} 上的 {name}:{limit.chinese}({table_zh});请核对所用版本,或放在 CPU 上计算",
                risk=limit.risk,
            )


def is_limited(site: Site, limit: OperatorLimit) -> bool:
    """Return True if a limit holds for the call: for every call, or only for a call that switches its keyword on.

    The limit of the keyword `sorted` holds if its value is False.
    """
    if not limit.keyword:
        return True
    keyword = site.keyword(limit.keyword)
    if keyword is None or not isinstance(keyword.value, ast.Constant):
        return keyword is not None
    value = keyword.value.value
    return value is False if limit.keyword == "sorted" else value not in (False, None)
