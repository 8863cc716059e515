"""Calls of the helper that rules write with `--to any`: `accelerator.device(0)`.

The helper is `migration/accelerator_device.py`: its object `accelerator` uses the available CUDA, NPU or MLU card. A
project gets a copy of the parts that it uses (`migration/helper_location.py`).
"""

from __future__ import annotations

import ast

from viaduct.migration.helper_location import HELPER_OBJECT
from viaduct.migration.lookups import argument_values, dotted_name, literal_text, plain_name
from viaduct.migration.rule import Site
from viaduct.migration.rules.torch._dotted_names import replace_dotted_name
from viaduct.migration.targets import import_helper

JIT_SCRIPT = "torch.jit.script"
TIGHTER_NODES = ast.Compare | ast.BinOp | ast.Attribute | ast.Subscript | ast.Starred | ast.Await
"""Nodes in which a comparison as operand needs parentheses."""


def report_if_in_torchscript(site: Site, node: ast.AST) -> bool:
    """Report a node in code that torch.jit.script compiles, which cannot use the helper; return True if reported."""
    ancestors = [*site.source.ancestors(node)]
    functions = [parent for parent in ancestors if isinstance(parent, ast.FunctionDef)]
    outer_names = {parent.name for parent in ancestors if isinstance(parent, ast.FunctionDef | ast.ClassDef)}
    decorators = [decorator for function in functions for decorator in function.decorator_list]
    compiled = [call.args[0] for call in site.file.index.calls.get(JIT_SCRIPT, []) if call.args]
    names = {(site.values.kind(item) or "").rpartition(".")[2] for item in compiled} | {*map(plain_name, compiled)}
    is_decorated = any((site.qualified_name(decorator) or "").startswith(JIT_SCRIPT) for decorator in decorators)
    if not is_decorated and not names & outer_names:
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
        site.request_review(
            f"write {new} for {old}; it cannot be edited safely here", zh=f"请将 {old} 改为 {new};此处无法安全改写"
        )


def device_expression(site: Site, literal: ast.expr) -> ast.expr:
    """Return the expression that begins with a device's literal: `"cuda:%d" % rank`, `"cuda:{}".format(rank)`."""
    parent = site.source.parents.get(literal)
    if isinstance(parent, ast.BinOp) and parent.left is literal:
        return parent
    if isinstance(parent, ast.Attribute) and parent.attr == "format":
        call = site.source.parents.get(parent)
        return call if isinstance(call, ast.Call) and call.func is parent else literal
    return literal


def device_number_text(site: Site, node: ast.expr) -> str | None:
    """Return the code of the number in a device's text: "rank" for `f"cuda:{rank}"`, "" for "cuda"; None if unknown."""
    if isinstance(node, ast.Constant):
        return str(node.value).partition(":")[2]
    if isinstance(node, ast.JoinedStr):
        return number_in_f_string(node)
    if isinstance(node, ast.BinOp):
        values = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
        if isinstance(node.op, ast.Add) and isinstance(node.right, ast.Call) and dotted_name(node.right.func) == "str":
            values = node.right.args
    else:
        values = argument_values(node) if isinstance(node, ast.Call) else []
    return site.text_of(values[0]) if len(values) == 1 else None


def number_in_f_string(node: ast.JoinedStr) -> str | None:
    """Return the number of `f"cuda:{rank}"` and of `f"cuda:0"`; None for any other f-string."""
    prefix, *others = node.values
    if not others and isinstance(prefix, ast.Constant):
        return str(prefix.value).partition(":")[2]
    number = others[0] if len(others) == 1 and literal_text(prefix) == "cuda:" else None
    if not isinstance(number, ast.FormattedValue) or number.format_spec is not None or number.conversion != -1:
        return None
    return ast.unparse(number.value)


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
    """Return True for a call of `torch.cuda.is_available` or the helper's, also as a part of an `and`."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    calls = [site.values.assigned_value(part) for part in parts]
    names = {site.qualified_name(call.func) for call in calls if isinstance(call, ast.Call)}
    helper_test = f"{site.file.project.helper_module_of(site.file.path)}.{HELPER_OBJECT}.is_available"
    return bool(names & {"torch.cuda.is_available", helper_test})


def parenthesize(site: Site, node: ast.AST, comparison: str) -> str:
    """Return the code of a comparison, in parentheses if they are needed in place of the node."""
    parent = site.source.parents.get(node)
    is_sign = isinstance(parent, ast.UnaryOp) and not isinstance(parent.op, ast.Not)
    return f"({comparison})" if isinstance(parent, TIGHTER_NODES) or is_sign else comparison
