"""Report double precision on the card.

float64 is unsupported on the NPU or nearly so, and few operators of the MLU have it. The vendors' run-time patches put
single precision in its place silently. This rule changes nothing and needs manual review: float32 on the card, or
float64 on the CPU, as for metrics that are summed up over an epoch.
"""

from __future__ import annotations

import ast

from viaduct.cards.limits import Risk
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._places import CARDS, is_cpu, is_move, place_of
from viaduct.migration.targets import cards

rule = Rule(__name__, spec="P5 6", kind="report", targets=("npu", "mlu", "any"), patch=True, everywhere=True, last=True)

TYPES = tuple(f"torch.{root}.Double{kind}" for root in CARDS for kind in ("Tensor", "Storage"))
DOUBLE = {"torch.float64", "torch.double", "torch.complex128", "torch.cdouble"}
OTHER_NUMBERS = {"float", "half", "bfloat16", "int", "long", "short", "char", "byte", "bool"}


@rule.call(*TYPES)
@rule.reference(*TYPES)
def report_old_type(site: Site) -> None:
    """Report the old tensor types of double precision."""
    report(site, "high")


@rule.call("torch.set_default_dtype")
def report_default(site: Site) -> None:
    """Report double precision as the default dtype."""
    dtype = site.argument("d", 0)
    if dtype is not None and site.qualified(dtype) in DOUBLE:
        report(site, "high")


@rule.call("torch.*")
def report_made(site: Site) -> None:
    """`torch.zeros(3, dtype=torch.float64, device=device)`."""
    dtype, device = site.argument("dtype"), site.argument("device")
    if dtype is not None and device is not None and site.qualified(dtype) in DOUBLE and not is_cpu(device):
        report(site, "medium")


@rule.method("to", "type", "double", *CARDS)
def report_method(site: Site) -> None:
    """Report a move or a cast to double precision."""
    if is_move(site.node):
        report_moved(site)
    elif casts_to_double(site, site.node) and not is_moved_next(site):
        report_cast(site)


def report_moved(site: Site) -> None:
    """`x.to(device, torch.float64)`, `x.double().cuda()`, `torch.zeros(3, dtype=torch.double).cuda()`."""
    if is_double(site, site.node):
        report(site, "medium")


def report_cast(site: Site) -> None:
    """`x.cuda().double()`, `x.to(torch.float64)`; silent where x is on the CPU."""
    location = place_of(site, site.node.func.value)
    if location == "card":
        report(site, "medium")
    elif location is None:
        report_doubtful(site)


def is_double(site: Site, node: ast.AST, depth: int = 0) -> bool:
    """Return True if the last call of a chain that names a number's format names double."""
    node = site.values.origin(node)
    if not isinstance(node, ast.Call) or depth > 8:
        return False
    values = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "dtype")]
    dtypes = [site.qualified(value) for value in values]
    if casts_to_double(site, node) or DOUBLE & set(dtypes):
        return True
    if not isinstance(node.func, ast.Attribute) or node.func.attr in OTHER_NUMBERS:
        return False
    reported = any(name and name.startswith("torch.") for name in dtypes)
    return not reported and is_double(site, node.func.value, depth + 1)


def casts_to_double(site: Site, call: ast.Call) -> bool:
    """Return True for a call that makes a tensor double."""
    if not isinstance(call.func, ast.Attribute):
        return False
    values = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "dtype")]
    reported = call.func.attr in ("to", "type") and any(site.qualified(value) in DOUBLE for value in values)
    return reported or (call.func.attr == "double" and not call.args)


def is_moved_next(site: Site) -> bool:
    """`x.double().cuda()` is told of once, and `x.double().cpu()` not at all."""
    above = site.source.parents.get(site.source.parents[site.node])
    if not isinstance(above, ast.Call) or not isinstance(above.func, ast.Attribute):
        return False
    return above.func.value is site.node and (is_move(above) or above.func.attr == "cpu")


def report_doubtful(site: Site) -> None:
    """Report a cast of a tensor, mostly a parameter, of which it is not seen where it is."""
    titles = " or ".join(target.title for target in cards(site.options))
    site.manual(
        f"double precision: if this is on the {titles}, where it is unsupported or very limited, use float32, or move "
        "it to the CPU first",
        zh=f"双精度:若该张量位于 {titles.replace(' or ', ' 或 ')}(不支持或仅有限支持双精度),"
        "请改用 float32,或先移至 CPU",
        risk="low",
    )


def report(site: Site, risk: Risk) -> None:
    """Report double precision with a risk."""
    titles = " and ".join(target.title for target in cards(site.options))
    site.manual(
        f"double precision on the {titles} is unsupported or very limited: use float32, or keep this on the CPU",
        zh=f"{titles.replace(' and ', '、')} 不支持或仅有限支持双精度:请改用 float32,或在 CPU 上计算",
        risk=risk,
    )
