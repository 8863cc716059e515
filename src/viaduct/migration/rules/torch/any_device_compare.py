"""Ask for any kind of card where the script asks whether a device is CUDA's.

     import torch
    -if device.type == "cuda":
    +from accelerator_device import accelerator
    +if device.type in accelerator.TYPES:
         benchmark()
    -if device == torch.device("cuda:0"):
    +if device == torch.device(accelerator.card(0)):
         report()

A branch for CUDA is the branch for the card; unchanged, an NPU would silently take the one for the CPU. `startswith`
takes the tuple as it is, and `x.is_cuda` becomes the same question to `x.device.type`. What is compared must be a
device. `accelerator.card(0)` is "cuda:0", "npu:0", "mlu:0", and without a card "cuda:0" again: were it "cpu", the
branch for the card would be taken there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.migration.predicates import is_in_torch_program, is_literal_in
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch import _helper as neutral
from viaduct.migration.rules.torch._device_texts import head, is_asked_for_key, is_exact
from viaduct.migration.rules.torch._devices import Devices, find_devices
from viaduct.migration.rules.torch._is_cuda import is_tensors
from viaduct.migration.rules.torch._numbers import branches
from viaduct.migration.targets import helper

rule = Rule(__name__, spec="P9 P10", kind="mandatory", targets=("any",))
OTHER_CARDS = ("npu", "mlu", "xpu", "hpu", "musa")
EXAMPLE_OPTIONS = {"to": "any"}
CUT = ("replace", "removeprefix", "split", "partition", "find", "index", "lstrip", "strip")


@rule.file(words=("cuda",))
def edit_comparisons(site: Site) -> None:
    if not is_in_torch_program(site):
        return
    devices = find_devices(site)
    for node in site.source.of_kind(ast.Compare):
        assert isinstance(node, ast.Compare)
        edit_comparison(site, devices, node)
    for call in site.work.index.methods.get("startswith", []):
        first = call.args[0] if call.args else None
        asked = isinstance(call.func, ast.Attribute) and devices.is_device(call.func.value)
        if first is not None and asked and is_literal_in(first, "cuda", "cuda:"):
            replace_comparison(site, first, render_types(helper(site, call), first), call)
    for method in CUT:
        for call in site.work.index.methods.get(method, []):
            report_cut(site, devices, call)
    for case in site.source.of_kind(ast.MatchValue):
        report_case(site, devices, case)


def edit_comparison(site: Site, devices: Devices, node: ast.Compare) -> None:
    sides = [node.left, *node.comparators]
    if not any(mentions(side) for side in sides):
        for literal in [inner for side in sides for inner in made_of(site, side)]:
            edit_made_device(site, literal)
        return
    if not any(devices.is_device(side) for side in sides):
        report_undecided(site, node)
        return
    made = any(True for side in sides for _ in made_of(site, side))
    if len(sides) != 2 or made or site.source.in_f_string(node):
        site.manual("compare with accelerator.TYPES here", zh="请在此处与 accelerator.TYPES 比较", node=node)
        return
    text = render_comparison(site, node.left, node.ops[0], node.comparators[0])
    if text:
        replace_comparison(site, node, text, node)
    else:
        site.manual(
            "compare with accelerator.card(NUMBER) here", zh="请在此处与 accelerator.card(编号) 比较", node=node
        )


def made_of(site: Site, side: ast.expr) -> Iterator[ast.expr]:
    """Yield the CUDA texts within `torch.device("cuda:0")`, also in a tuple, in str() or in a branch."""
    if isinstance(side, ast.Tuple | ast.List | ast.Set):
        parts: list[ast.expr] = side.elts
    elif isinstance(side, ast.IfExp):
        parts = [side.body, side.orelse]
    elif isinstance(side, ast.Call) and side.args and isinstance(side.func, ast.Name) and side.func.id == "str":
        parts = side.args[:1]
    else:
        device = isinstance(side, ast.Call) and site.qualified(side.func) == "torch.device"
        given = [*side.args[:1], *(keyword.value for keyword in side.keywords)] if isinstance(side, ast.Call) else []
        yield from (node for text in given if device for node in branches(text) if head(node) is not None)
        return
    for part in parts:
        yield from made_of(site, part)


def edit_made_device(site: Site, text: ast.expr) -> None:
    given = neutral.device_number(site, text)
    if given is None or site.source.in_f_string(text):
        site.manual(
            "compare with accelerator.card(NUMBER) here", zh="请在此处与 accelerator.card(编号) 比较", node=text
        )
    else:
        replace_comparison(site, text, f"{helper(site, text)}.card({given})", text)


def report_undecided(site: Site, node: ast.Compare) -> None:
    sides = [node.left, *node.comparators]
    exact = [side for side in sides if is_exact(side)]
    if exact and not any(is_asked_for_key(operator, node.left, exact[0]) for operator in node.ops):
        site.manual(
            "compared with 'cuda', but not found to be a device: unchanged; if it is one, use accelerator.TYPES",
            zh="与 'cuda' 比较,但未能确认是设备:保持不变;若是设备,请与 accelerator.TYPES 比较",
            risk="low",
            node=node,
        )


def mentions(side: ast.expr) -> bool:
    held = side.elts if isinstance(side, ast.Tuple | ast.List | ast.Set) else [side]
    return any(head(node) is not None for node in held)


def render_comparison(site: Site, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> str:
    name = helper(site, left)
    negated = "not " if isinstance(operator, ast.NotEq | ast.NotIn) else ""
    if isinstance(operator, ast.Eq | ast.NotEq):
        text, other = (left, right) if head(left) is not None else (right, left)
        if is_literal_in(text, "cuda"):
            return f"{site.text(other)} {negated}in {name}.TYPES"
        given = neutral.device_number(site, text)
        same = "!=" if negated else "=="
        return f"{site.text(other)} {same} {name}.card({given})" if given is not None else ""
    if isinstance(operator, ast.In | ast.NotIn) and is_literal_in(left, "cuda", "cuda:"):
        return f"{negated}any(kind in {site.text(right)} for kind in {render_types(name, left)})"
    given = (
        neutral.device_number(site, left)
        if isinstance(operator, ast.In | ast.NotIn) and head(left) is not None
        else None
    )
    if given:
        return f"{name}.card({given}) {negated}in {site.text(right)}"
    if isinstance(operator, ast.In | ast.NotIn) and isinstance(right, ast.Tuple | ast.List | ast.Set):
        return f"{site.text(left)} {negated}in {render_members(site, right, name)}"
    return ""


def render_types(name: str, literal: ast.expr) -> str:
    """Return the expression for all types of card, each with a colon if the literal has one."""
    return f"{name}.TYPES" if is_literal_in(literal, "cuda") else f'tuple(kind + ":" for kind in {name}.TYPES)'


def report_cut(site: Site, devices: Devices, call: ast.Call) -> None:
    """Report a device's text that is taken apart: `str(device).replace("cuda:", "")`."""
    held = call.func.value if isinstance(call.func, ast.Attribute) else None
    if held is not None and call.args and is_literal_in(call.args[0], "cuda", "cuda:") and devices.is_device(held):
        site.manual(
            "this takes a device's text apart by 'cuda': use torch.device(…).index or .type",
            zh="此处按 'cuda' 拆分设备文本:请改用 torch.device(…).index 或 .type",
            node=call,
        )


def render_members(site: Site, held: ast.Tuple | ast.List | ast.Set, name: str) -> str:
    """Return `("cuda", "cpu")` with all types of card in place of "cuda"."""
    start = site.source.span(held)[0]
    text = site.text(held)
    for element in reversed(held.elts):
        begin, end = (item - start for item in site.source.span(element))
        if is_literal_in(element, "cuda"):
            text = f"{text[:begin]}*{name}.TYPES{text[end:]}"
        elif head(element) is not None and neutral.device_number(site, element) is not None:
            text = f"{text[:begin]}{name}.card({neutral.device_number(site, element)}){text[end:]}"
    return text


def replace_comparison(site: Site, node: ast.expr, text: str, said: ast.AST) -> None:
    if site.work.is_served(node) or neutral.is_scripted(site, node):
        return
    if has_branch_for_another_card(site, node):
        site.manual(
            "another branch here is for another card, and this one would take its place: make sure that each card has "
            "its branch",
            zh="此处另有针对其他加速卡的分支,改写后会被本分支取代:请确认各加速卡都有自己的分支",
            node=said,
        )
        return
    site.edit.node(node, text)
    site.changed("the branch for CUDA is now taken for any card", zh="针对 CUDA 的分支改为针对任意加速卡", node=said)


def has_branch_for_another_card(site: Site, node: ast.AST) -> bool:
    """Return True for `if d.type == "cuda": … elif d.type == "npu": …`, in either order."""
    chain = next((parent for parent in site.source.ancestors(node) if isinstance(parent, ast.If | ast.IfExp)), None)
    if chain is None or not any(child is node for child in ast.walk(chain.test)):
        return False
    while isinstance(outer := site.source.parents.get(chain), ast.If | ast.IfExp) and is_else_of(chain, outer):
        chain = outer
    tests, branch = [chain.test], else_of(chain)
    while isinstance(branch, ast.If | ast.IfExp):
        tests.append(branch.test)
        branch = else_of(branch)
    return any(is_literal_in(inner, *OTHER_CARDS) for test in tests for inner in ast.walk(test))


def else_of(branch: ast.If | ast.IfExp) -> ast.AST | None:
    """Return the one thing that stands behind `else`."""
    if isinstance(branch, ast.IfExp):
        return branch.orelse
    return branch.orelse[0] if len(branch.orelse) == 1 else None


def is_else_of(inner: ast.AST, outer: ast.If | ast.IfExp) -> bool:
    return else_of(outer) is inner


def report_case(site: Site, devices: Devices, node: ast.AST) -> None:
    statement = next((parent for parent in site.source.ancestors(node) if isinstance(parent, ast.Match)), None)
    named = isinstance(node, ast.MatchValue) and is_literal_in(node.value, "cuda")
    if statement and named and devices.is_device(statement.subject):
        site.manual('write case "cuda" | "npu" | "mlu":', zh='请改为 case "cuda" | "npu" | "mlu":', node=node)


@rule.node(ast.Attribute, words=("is_cuda",))
def is_cuda(site: Site) -> None:
    if not is_tensors(site, "x.device.type in accelerator.TYPES"):
        return
    if neutral.is_scripted(site, site.node):
        return
    if not site.editable:
        site.manual("write .device.type in accelerator.TYPES", zh="请改为 .device.type in accelerator.TYPES")
        return
    text = f"{site.text(site.node.value)}.device.type in {helper(site)}.TYPES"
    site.edit.node(site.node, neutral.in_brackets(site, site.node, text))
    site.changed("is_cuda becomes a question for any card", zh="is_cuda 改为判断是否位于任意加速卡")
