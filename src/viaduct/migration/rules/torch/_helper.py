"""Shared parts of the rules of `--to any`: the helper's name in a file, device texts as calls of it, branches that ask
first.

The helper is `migration/accelerator_device.py`; a project gets what it uses of it, where `migration/neutral.py` says.
"""

from __future__ import annotations

import ast

from viaduct.migration.neutral import NAME
from viaduct.migration.rule import Site
from viaduct.migration.rules.torch._chains import dotted_name, swap
from viaduct.migration.targets import helper

AMP = "torch.cuda.amp"

OWN = {
    **dict.fromkeys((f"{AMP}.autocast", f"{AMP}.autocast_mode.autocast"), "autocast"),
    **dict.fromkeys((f"{AMP}.GradScaler", f"{AMP}.grad_scaler.GradScaler"), "GradScaler"),
    **{f"{AMP}.{name}": f"amp.{name}" for name in ("custom_fwd", "custom_bwd")},
    **{f"{AMP}.autocast_mode.{name}": f"amp.{name}" for name in ("custom_fwd", "custom_bwd")},
}


SCRIPT = "torch.jit.script"
LOOSE = ast.Compare | ast.BinOp | ast.Attribute | ast.Subscript | ast.Starred | ast.Await
"""Around a comparison these want parentheses."""


def from_helper(site: Site, name: str | None) -> str | None:
    """Return the name within the helper: `is_available` of `accelerator_device.accelerator.is_available`."""
    prefix = f"{site.work.project.helper_of(site.work.path)}.{NAME}."
    return name.removeprefix(prefix) if name and name.startswith(prefix) else None


def is_scripted(site: Site, node: ast.AST) -> bool:
    """Return True, and report it, within code that torch.jit.script compiles: the helper cannot be used there."""
    functions = [parent for parent in site.source.ancestors(node) if isinstance(parent, ast.FunctionDef)]
    names = {
        ancestor.name
        for ancestor in site.source.ancestors(node)
        if isinstance(ancestor, ast.FunctionDef | ast.ClassDef)
    }
    marks = [mark for function in functions for mark in function.decorator_list]
    given = [call.args[0] for call in site.work.index.calls.get(SCRIPT, []) if call.args]
    kinds = {(site.values.kind(item) or "").rpartition(".")[2] for item in given}
    kinds |= {candidate.id for candidate in given if isinstance(candidate, ast.Name)}
    found = any((site.qualified(mark) or "").startswith(SCRIPT) for mark in marks) or bool(kinds & names)
    if found:
        site.manual(
            "torch.jit.script compiles this and cannot use the helper: pass the device as an argument, or keep the "
            "function for CUDA",
            zh="此处由 torch.jit.script 编译,无法使用辅助模块:请把设备作为参数传入,或仅用于 CUDA",
            risk="high",
            node=node,
        )
    return found


def replace_by_helper(site: Site, node: ast.expr, name: str) -> bool:
    """Replace a chain of names by `accelerator.NAME`; report it, and return False, where that cannot be done."""
    if is_scripted(site, node):
        return False
    old, new = dotted_name(node) or "", f"{helper(site, node)}.{name}"
    done = swap(site, node, old, new)
    if done:
        site.changed(f"{old} becomes {new}: of the available card", zh=f"{old} 替换为 {new},适用于各种加速卡")
    else:
        site.manual(
            f"write {new} for {old}; this place cannot be edited safely", zh=f"请将 {old} 改为 {new};此处无法安全改写"
        )
    return done


def full_expression(site: Site, literal: ast.expr) -> ast.expr:
    """Return the expression that a device's literal begins: `"cuda:%d" % rank`, `"cuda:{}".format(rank)`."""
    parent = site.source.parents.get(literal)
    if isinstance(parent, ast.BinOp) and parent.left is literal:
        return parent
    if isinstance(parent, ast.Attribute) and parent.attr == "format":
        call = site.source.parents.get(parent)
        return call if isinstance(call, ast.Call) and call.func is parent else literal
    return literal


def device_number(site: Site, node: ast.expr) -> str | None:
    """Return the text of a device's number, "" where it has none; None where the text is composed in another way."""
    if isinstance(node, ast.Constant):
        return str(node.value).partition(":")[2]
    if isinstance(node, ast.JoinedStr):
        return of_f_string(node)
    if isinstance(node, ast.BinOp):
        value = node.right
        if isinstance(value, ast.Tuple):
            return site.text(value.elts[0]) if len(value.elts) == 1 else None
        if isinstance(node.op, ast.Add) and isinstance(value, ast.Call) and dotted_name(value.func) == "str":
            return site.text(value.args[0]) if len(value.args) == 1 else None
        return site.text(value)
    if isinstance(node, ast.Call):
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        return site.text(given[0]) if len(given) == 1 else None
    return None


def of_f_string(node: ast.JoinedStr) -> str | None:
    """Return the number of `f"cuda:{rank}"` and of `f"cuda:0"`; None for any other f-string."""
    remainder = node.values[1:]
    first = node.values[0]
    if not remainder and isinstance(first, ast.Constant):
        return str(first.value).partition(":")[2]
    if len(remainder) != 1 or not (isinstance(first, ast.Constant) and first.value == "cuda:"):
        return None
    value = remainder[0]
    if not isinstance(value, ast.FormattedValue) or value.format_spec is not None or value.conversion != -1:
        return None
    return ast.unparse(value.value)


def is_guarded(site: Site, node: ast.AST) -> bool:
    """Return True if a branch around the node asks for a card: the node is reached only if there is one."""
    child = node
    for parent in site.source.ancestors(node):
        if isinstance(parent, ast.If | ast.IfExp) and child is not parent.test:
            negated = isinstance(parent.test, ast.UnaryOp) and isinstance(parent.test.op, ast.Not)
            body = parent.body if isinstance(parent.body, list) else [parent.body]
            asked = parent.test.operand if isinstance(parent.test, ast.UnaryOp) and negated else parent.test
            if asks_for_card(site, asked) and (child in body) != negated:
                return True
        child = parent
    return False


def asks_for_card(site: Site, test: ast.expr) -> bool:
    """`torch.cuda.is_available()`, alone or with `and`."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    calls = [site.values.origin(part) for part in parts]
    names = [site.qualified(call.func) for call in calls if isinstance(call, ast.Call)]
    return any(name == "torch.cuda.is_available" or from_helper(site, name) == "is_available" for name in names)


def in_brackets(site: Site, node: ast.AST, text: str) -> str:
    """Return a comparison, in parentheses where it replaces something that bound more tightly."""
    parent = site.source.parents.get(node)
    unary = isinstance(parent, ast.UnaryOp) and not isinstance(parent.op, ast.Not)
    return f"({text})" if isinstance(parent, LOOSE) or unary else text
