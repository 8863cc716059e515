"""Report a number of steps that is a float.

`steps=images / batch` is a float in Python 3, and so is `1e4`. TensorFlow on the host accepts it; a loop on the device
needs an int.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, target_needs="estimators", spec_rows=("E16",), category="report", runs_last=True)


@rule.call("tensorflow.estimator.TrainSpec", "tensorflow.estimator.EvalSpec")
def check_specification(site: Site) -> None:
    check_steps(site, site.argument("max_steps" if site.name.endswith("TrainSpec") else "steps", 1))


@rule.method("train", "evaluate")
def check_method(site: Site) -> None:
    if site.values.kind(site.node.func.value) in ("estimator", "npu_estimator"):
        for name in ("steps", "max_steps"):
            check_steps(site, site.argument(name))


def check_steps(site: Site, value: ast.expr | None) -> None:
    """Report a value that is a literal float or the result of a division with `/`."""
    origin = site.values.assigned_value(value) if value is not None else None
    is_float = isinstance(origin, ast.Constant) and isinstance(origin.value, float)
    if value is not None and (is_float or (isinstance(origin, ast.BinOp) and isinstance(origin.op, ast.Div))):
        site.request_review(
            f"{site.text_of(value)} is a float: write int(…) or //",
            zh=f"{site.text_of(value)} 为浮点数:请使用 int(…) 或 //",
            node=value,
        )
