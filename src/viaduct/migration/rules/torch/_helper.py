"""Calls of the helper that rules write with `--to any`: `accelerator.device(0)`.

The helper is `migration/accelerator_device.py`: its object `accelerator` uses the available CUDA, NPU or MLU card. A
project gets a copy of the parts that it uses (`migration/helper_location.py`).
"""

from __future__ import annotations

import ast

from viaduct.cards import DEVICE_TYPES
from viaduct.migration.helper_location import HELPER_OBJECT
from viaduct.migration.lookups import dotted_name, plain_name
from viaduct.migration.rule import Site
from viaduct.migration.rules.torch._dotted_names import replace_dotted_name, report_uneditable
from viaduct.migration.targets import import_helper

JIT_SCRIPT = "torch.jit.script"
TIGHTER_NODES = ast.Compare | ast.BinOp | ast.Attribute | ast.Subscript | ast.Starred | ast.Await
"""Nodes in which a comparison as operand needs parentheses."""


def report_if_in_torchscript(site: Site, node: ast.AST) -> bool:
    """Report a node in code that torch.jit.script compiles, which cannot call the helper; return True if reported.

    A target other than `--to any` needs no helper, so nothing is reported.
    """
    if not site.target.is_any_card:
        return False
    ancestors = [*site.source.ancestors(node)]
    functions = [parent for parent in ancestors if isinstance(parent, ast.FunctionDef)]
    outer_names = {parent.name for parent in ancestors if isinstance(parent, ast.FunctionDef | ast.ClassDef)}
    decorators = [decorator for function in functions for decorator in function.decorator_list]
    is_decorated = any((site.qualified_name(decorator) or "").startswith(JIT_SCRIPT) for decorator in decorators)
    compiled = [call.args[0] for call in site.file.index.calls.get(JIT_SCRIPT, []) if call.args]
    compiled_functions = {plain_name(value) for value in compiled}
    classes_of_compiled = {(site.values.kind(value) or "").rpartition(".")[2] for value in compiled}
    if not is_decorated and not (compiled_functions | classes_of_compiled) & outer_names:
        return False
    site.request_review(
        "torch.jit.script compiles this and cannot use the helper: pass the device as an argument, or keep the "
        "function for CUDA",
        zh="此处由 torch.jit.script 编译,无法使用辅助模块:请把设备作为参数传入,或仅用于 CUDA",
        risk="high",
        node=node,
    )
    return True


def replace_by_helper(site: Site, node: ast.expr, name: str) -> None:
    """Replace a dotted name by `accelerator.NAME`, or report it."""
    if report_if_in_torchscript(site, node):
        return
    old, new = dotted_name(node), f"{import_helper(site, node)}.{name}"
    if replace_dotted_name(site, node, old, new):
        site.report_change(f"{old} becomes {new}, for the available card", zh=f"{old} 替换为 {new},适用于各种加速卡")
    else:
        report_uneditable(site, old, new)


def runs_only_with_card(site: Site, node: ast.AST) -> bool:
    """Return True if the node is in a branch that runs only if there is a card."""
    child = node
    for parent in site.source.ancestors(node):
        if isinstance(parent, ast.If | ast.IfExp) and child is not parent.test:
            body = parent.body if isinstance(parent.body, list) else [parent.body]
            test, needs_card = parent.test, child in body
            if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
                test, needs_card = test.operand, not needs_card
            if needs_card and is_availability_test(site, test):
                return True
        child = parent
    return False


def is_availability_test(site: Site, test: ast.expr) -> bool:
    """Return True for a call of one of the `get_availability_tests`, also as a part of an `and`."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    calls = [site.values.assigned_value(part) for part in parts]
    names = {site.qualified_name(call.func) for call in calls if isinstance(call, ast.Call)}
    return bool(names & get_availability_tests(site))


def get_availability_tests(site: Site) -> set[str]:
    """Return the functions that test for a card: torch's, and the helper's."""
    helper_test = f"{site.file.project.helper_module_of(site.file.path)}.{HELPER_OBJECT}.is_available"
    return {helper_test, *(f"torch.{module}.is_available" for module in (*DEVICE_TYPES, "accelerator"))}


def parenthesize(site: Site, node: ast.AST, code: str) -> str:
    """Return the code that replaces a node, in parentheses if it is a comparison and needs them there."""
    parent = site.source.parents.get(node)
    is_sign = isinstance(parent, ast.UnaryOp) and not isinstance(parent.op, ast.Not)
    needs_parentheses = " in " in code and (isinstance(parent, TIGHTER_NODES) or is_sign)
    return f"({code})" if needs_parentheses else code
