"""Replace the tanh formula of GELU by the NPU's operator.

     import numpy as np
     import tensorflow as tf
    +from npu_bridge.estimator.npu_unary_ops import npu_unary_ops

     def gelu(x):
         # as in the paper
    -    cdf = 0.5 * (1.0 + tf.tanh((np.sqrt(2 / np.pi) * (x + 0.044715 * tf.pow(x, 3)))))
    -    return x * cdf
    +    return npu_unary_ops.gelu(x)

The returned expression is computed at seven points and must agree with 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
to 1e-5; the function's name does not matter. The exact form with erf returns other numbers: it stays, with advice.
"""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

from viaduct.migration.lookups import plain_name, sole_target
from viaduct.migration.rule import Rule, Site
from viaduct.migration.source import FunctionNode

rule = Rule(__name__, spec_rows=("N3",), category="performance")

POINTS = (-3.0, -1.2, -0.3, 0.0, 0.4, 1.0, 2.5)
FUNCTIONS: dict[str, Callable[..., float]] = {
    "tanh": math.tanh,
    "sqrt": math.sqrt,
    "erf": math.erf,
    "pow": math.pow,
    "multiply": lambda a, b: a * b,
    "add": lambda a, b: a + b,
    "square": lambda a: a * a,
    "cast": lambda a, *_: a,  # without the dtype
    "constant": lambda a, *_: a,
}
MODULES = ("tensorflow", "numpy", "math")
NOT_ARITHMETIC = (KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError, RecursionError)


def compute_tanh_form(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def compute_erf_form(x: float) -> float:
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))


@rule.node(ast.Return, only_if_file_contains=("tanh", "erf"))
def replace_returned(site: Site) -> None:
    """Replace a returned expression that has the values of the tanh form; advise on the exact form."""
    function = site.source.function_around(site.node)
    if function is None or site.node.value is None:
        return
    for parameter in [parameter.arg for parameter in function.args.args if parameter.arg not in ("self", "cls")]:
        values = evaluate_returned(site, function, parameter)
        if values and agree_with(values, compute_tanh_form):
            replace_formula(site, function, parameter)
            return
        if values and agree_with(values, compute_erf_form):
            site.advise(
                "the exact GELU (erf) stays: npu_unary_ops.gelu is the tanh form and returns other numbers",
                zh="精确 GELU(erf)保持不变:npu_unary_ops.gelu 为 tanh 近似,数值不同",
            )
            return


def agree_with(values: list[float], form: Callable[[float], float]) -> bool:
    """Return True if the values at POINTS agree with a form; at 2.5 the two forms differ by more than 1e-4."""
    return all(abs(value - form(x)) < 1e-5 for value, x in zip(values, POINTS, strict=True))


def evaluate_returned(site: Site, function: FunctionNode, parameter: str) -> list[float]:
    """Return the values of the returned expression at POINTS; [] if it is not plainly arithmetic on the parameter."""
    try:
        return [Arithmetic(site, function, {parameter: x}).evaluate(site.node.value) for x in POINTS]
    except NOT_ARITHMETIC:
        return []


class Arithmetic:
    """Evaluator of the arithmetic of a function for the values of its parameters."""

    def __init__(self, site: Site, function: FunctionNode, parameters: dict[str, float]) -> None:
        self.site, self.parameters = site, parameters
        self.assigned: dict[str, ast.expr] = {}
        self.used: set[str] = set()  # variables that were read
        names = [node for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
        stores = Counter(node.id for node in names)
        if any(stores[name] for name in parameters) or max(stores.values(), default=0) > 1:
            raise ValueError("a name has several assignments")
        for statement in function.body:
            target = sole_target(statement)
            if isinstance(statement, ast.Assign) and isinstance(target, ast.Name):
                self.assigned[target.id] = statement.value

    def evaluate(self, node: ast.AST) -> float:
        """Return the value of an expression; raise one of NOT_ARITHMETIC for anything but arithmetic."""
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return float(node.value)
        if isinstance(node, ast.Name):
            if node.id in self.parameters:
                return self.parameters[node.id]
            self.used.add(node.id)
            return self.evaluate(self.assigned[node.id])
        if isinstance(node, ast.BinOp):
            return self.evaluate_operation(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self.evaluate(node.operand)
        if isinstance(node, ast.Call):
            return self.evaluate_call(node)
        if (name := self.site.qualified_name(node)) in ("numpy.pi", "math.pi"):
            return math.pi
        raise ValueError(name)

    def evaluate_operation(self, node: ast.BinOp) -> float:
        left, right = self.evaluate(node.left), self.evaluate(node.right)
        table: dict[type[ast.operator], Any] = {
            ast.Add: left.__add__, ast.Sub: left.__sub__, ast.Mult: left.__mul__,
            ast.Div: left.__truediv__, ast.Pow: left.__pow__,
        }  # fmt: skip
        return float(table[type(node.op)](right))

    def evaluate_call(self, node: ast.Call) -> float:
        name = self.site.qualified_name(node.func) or ""
        if name.partition(".")[0] not in MODULES:
            raise ValueError(name)
        return float(FUNCTIONS[name.rpartition(".")[2]](*(self.evaluate(argument) for argument in node.args)))


def replace_formula(site: Site, function: FunctionNode, parameter: str) -> None:
    """Replace the formula by the device's operator, and remove the assignments that only the formula used."""
    arithmetic = Arithmetic(site, function, {parameter: 1.0})
    arithmetic.evaluate(site.node.value)
    site.edit.replace_node(site.node.value, f"{site.import_npu_name('npu_unary_ops')}.gelu({parameter})")
    for name in arithmetic.used:
        mentions = [node for node in ast.walk(function) if plain_name(node) == name]
        if len(mentions) == 2:  # assigned once, read once
            site.edit.remove_statement(site.source.statement_around(arithmetic.assigned[name]))
    site.report_change("the tanh form of GELU becomes the device's operator", zh="tanh 形式的 GELU 替换为昇腾算子")
