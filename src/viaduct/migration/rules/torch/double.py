"""Report double precision on the card.

The NPU and the MLU support float64 for few operators or none. Ascend's run-time patch makes a torch.cuda.DoubleTensor a
FloatTensor. This rule only reports: use float32 on the card, or float64 on the CPU.
"""

from __future__ import annotations

import ast

from viaduct.cards import DEVICE_TYPES
from viaduct.cards.limits import Risk
from viaduct.migration.lookups import method_name
from viaduct.migration.rule import Site, make_rule_on_migrated_code
from viaduct.migration.rules.torch._locations import find_location, is_cpu, is_move

rule = make_rule_on_migrated_code(
    __name__, target_needs="torch_functions", spec_rows=("P5", "6"), visits_lines_left_alone=True
)

DOUBLE_TYPES = tuple(f"torch.{root}.Double{kind}" for root in DEVICE_TYPES for kind in ("Tensor", "Storage"))
MAX_DEPTH = 8  # calls in a chain such as `x.float().double()`
DOUBLE_DTYPES = {"torch.float64", "torch.double", "torch.complex128", "torch.cdouble"}
OTHER_CASTS = {"float", "half", "bfloat16", "int", "long", "short", "char", "byte", "bool"}


@rule.use(*DOUBLE_TYPES)
def report_old_type(site: Site) -> None:
    report_double(site, risk="high")


@rule.call("torch.set_default_dtype")
def report_default(site: Site) -> None:
    dtype = site.argument("d", 0)
    if dtype is not None and site.qualified_name(dtype) in DOUBLE_DTYPES:
        report_double(site, "high")


@rule.call("torch.*")
def report_constructor(site: Site) -> None:
    """Report `torch.zeros(3, dtype=torch.float64, device=device)`."""
    dtype, device = site.argument("dtype"), site.argument("device")
    if dtype is not None and device is not None and site.qualified_name(dtype) in DOUBLE_DTYPES and not is_cpu(device):
        report_double(site, "medium")


@rule.method("to", "type", "double", *DEVICE_TYPES)
def report_method(site: Site) -> None:
    """Report a move of a double tensor, `x.double().cuda()`, and a cast of a tensor that may be on the card."""
    if is_move(site.node):
        if is_double(site, site.node):
            report_double(site, "medium")
    elif casts_to_double(site, site.node) and not is_moved_next(site):
        location = find_location(site, site.node.func.value)
        if location == "card":
            report_double(site, "medium")
        elif location is None:
            report_doubtful(site)


def is_double(site: Site, node: ast.AST, depth: int = 0) -> bool:
    """Return True if the last dtype in a chain of calls is a double one: `x.float().double().cuda()`."""
    node = site.values.assigned_value(node)
    if not isinstance(node, ast.Call) or depth > MAX_DEPTH:
        return False
    dtypes = get_possible_dtypes(site, node)
    if casts_to_double(site, node) or dtypes & DOUBLE_DTYPES:
        return True
    if not isinstance(node.func, ast.Attribute) or node.func.attr in OTHER_CASTS:
        return False
    has_other_dtype = any(name.startswith("torch.") for name in dtypes)
    return not has_other_dtype and is_double(site, node.func.value, depth + 1)


def get_possible_dtypes(site: Site, call: ast.Call) -> set[str]:
    """Return the qualified names of a call's positional arguments and of its dtype."""
    values = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "dtype")]
    return {site.qualified_name(value) or "" for value in values}


def casts_to_double(site: Site, call: ast.Call) -> bool:
    """Return True for `x.double()`, `x.to(torch.float64)` and `x.type(torch.float64)`."""
    method = method_name(call)
    by_dtype = method in ("to", "type") and bool(get_possible_dtypes(site, call) & DOUBLE_DTYPES)
    return by_dtype or (method == "double" and not call.args)


def is_moved_next(site: Site) -> bool:
    """Return True in `x.double().cuda()`, whose move is reported, and in `x.double().cpu()`."""
    outer = site.source.parents.get(site.source.parents[site.node])
    if not isinstance(outer, ast.Call) or not isinstance(outer.func, ast.Attribute):
        return False
    return outer.func.value is site.node and (is_move(outer) or outer.func.attr == "cpu")


def report_doubtful(site: Site) -> None:
    """Report a cast of a tensor whose location is unknown."""
    titles = " or ".join(card.title for card in site.cards)
    site.request_review(
        f"double precision: if this is on the {titles}, where it is unsupported or very limited, use float32, or move "
        "it to the CPU first",
        zh=f"双精度:若该张量位于 {titles.replace(' or ', ' 或 ')}(不支持或仅有限支持双精度),"
        "请改用 float32,或先移至 CPU",
        risk="low",
    )


def report_double(site: Site, risk: Risk) -> None:
    titles = " and ".join(card.title for card in site.cards)
    site.request_review(
        f"double precision on the {titles} is unsupported or very limited: use float32, or keep this on the CPU",
        zh=f"{titles.replace(' and ', '、')} 不支持或仅有限支持双精度:请改用 float32,或在 CPU 上计算",
        risk=risk,
    )
