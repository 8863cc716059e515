"""Compare a device with every kind of card where the script compares it with CUDA.

     import torch
    -if device.type == "cuda":
    +from accelerator_device import accelerator
    +if device.type in accelerator.TYPES:
         benchmark()
    -if device == torch.device("cuda:0"):
    +if device == torch.device(accelerator.card(0)):
         report()

Without this an NPU would silently take the branch for the CPU. The helper module accelerator_device, which the
migration adds to the project, has TYPES, the types of all cards as a tuple. `startswith` accepts it too, and
`x.is_cuda` becomes a comparison of `x.device.type`. Comparisons are edited only if a device is compared.
`accelerator.card(0)` is "cuda:0", "npu:0" or "mlu:0". Without a card it is "cuda:0" too, since "cpu" would select the
branch for the card.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.migration.lookups import branches, elements, plain_name
from viaduct.migration.predicates import is_in_torch_program, is_literal_in
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._device_texts import device_literal, is_cuda_device, is_membership_key
from viaduct.migration.rules.torch._devices import Devices, find_devices
from viaduct.migration.rules.torch._helper import device_number_text, parenthesize, report_if_in_torchscript
from viaduct.migration.rules.torch._is_cuda import may_be_tensor_attribute, report_if_ambiguous
from viaduct.migration.targets import import_helper

rule = Rule(__name__, requirement="device_strings", rows=("P9", "P10"), targets=("any",))
OTHER_CARDS = ("npu", "mlu", "xpu", "hpu", "musa")
SPLITTING_METHODS = ("replace", "removeprefix", "split", "partition", "find", "index", "lstrip", "strip")
TYPE_ADVICE = ("compare with accelerator.TYPES here", "请在此处与 accelerator.TYPES 比较")
UNDECIDED = (
    "this compares 'cuda' with something that may be no device: unchanged; if it is one, use accelerator.TYPES",
    "与 'cuda' 比较,但未能确认是设备:保持不变;若是设备,请与 accelerator.TYPES 比较",
)
NUMBER_ADVICE = ("compare with accelerator.card(NUMBER) here", "请在此处与 accelerator.card(编号) 比较")


@rule.file(only_if_file_contains=("cuda",))
def edit_comparisons(site: Site) -> None:
    """Change the comparisons of a device with CUDA; report those that cannot be changed."""
    if not is_in_torch_program(site):
        return
    devices = find_devices(site)
    for node in site.source.nodes_of_type(ast.Compare):
        edit_comparison(site, devices, node)
    for call in site.file.index.methods.get("startswith", []):
        prefix = call.args[0] if call.args else None
        is_of_device = isinstance(call.func, ast.Attribute) and devices.is_device(call.func.value)
        if prefix is not None and is_of_device and is_literal_in(prefix, "cuda", "cuda:"):
            replace_comparison(site, prefix, render_types(import_helper(site, call), prefix), call)
    for method in SPLITTING_METHODS:
        for call in site.file.index.methods.get(method, []):
            report_split_text(site, devices, call)
    for statement in site.source.nodes_of_type(ast.Match):
        report_cases(site, devices, statement)


def edit_comparison(site: Site, devices: Devices, node: ast.Compare) -> None:
    """Change or report one comparison with a CUDA text on one of its sides, or within torch.device(…)."""
    sides = [node.left, *node.comparators]
    constructor_texts = [text for side in sides for text in texts_in_torch_device(site, side)]
    if not any(device_literal(part) is not None for side in sides for part in elements(side)):
        for literal in constructor_texts:
            edit_text_in_torch_device(site, literal)
        return
    if not any(devices.is_device(side) for side in sides):
        report_undecided(site, node)
        return
    if len(sides) != 2 or constructor_texts or site.source.is_in_f_string(node):
        site.request_review(*TYPE_ADVICE, node=node)
        return
    text = render_comparison(site, node.left, node.ops[0], node.comparators[0])
    if text:
        replace_comparison(site, node, text, node)
    else:
        site.request_review(*NUMBER_ADVICE, node=node)


def texts_in_torch_device(site: Site, side: ast.expr) -> Iterator[ast.expr]:
    """Yield the CUDA texts within `torch.device("cuda:0")`, also in a tuple, in str() or in a branch."""
    parts = [part for branch in branches(side) for part in elements(branch)]
    if isinstance(side, ast.Call) and plain_name(side.func) == "str":
        parts = side.args[:1]
    if parts != [side]:  # the side is a tuple, str() or a conditional expression
        for part in parts:
            yield from texts_in_torch_device(site, part)
    elif isinstance(side, ast.Call) and site.qualified_name(side.func) == "torch.device":
        values = [*side.args[:1], *(keyword.value for keyword in side.keywords)]
        yield from (text for value in values for text in branches(value) if device_literal(text) is not None)


def edit_text_in_torch_device(site: Site, text: ast.expr) -> None:
    """Replace the text in `torch.device("cuda:0")` by `accelerator.card(0)`."""
    number = device_number_text(site, text)
    if number is None or site.source.is_in_f_string(text):
        site.request_review(*NUMBER_ADVICE, node=text)
    else:
        replace_comparison(site, text, f"{import_helper(site, text)}.card({number})", text)


def report_undecided(site: Site, node: ast.Compare) -> None:
    """Report `x == "cuda"` for an x that may be no device, but not `"cuda" in x`."""
    texts = [side for side in (node.left, *node.comparators) if is_cuda_device(side)]
    if texts and not any(is_membership_key(operator, node.left, texts[0]) for operator in node.ops):
        site.request_review(*UNDECIDED, risk="low", node=node)


def render_comparison(site: Site, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> str:
    """Return a comparison of a device with CUDA as one with any card; "" if no such form is known."""
    helper = import_helper(site, left)
    negated = "not " if isinstance(operator, ast.NotEq | ast.NotIn) else ""
    if isinstance(operator, ast.Eq | ast.NotEq):
        text, other = (left, right) if device_literal(left) is not None else (right, left)
        if is_literal_in(text, "cuda"):
            return f"{site.text_of(other)} {negated}in {helper}.TYPES"
        number = device_number_text(site, text)
        equality = "!=" if negated else "=="
        return f"{site.text_of(other)} {equality} {helper}.card({number})" if number is not None else ""
    if not isinstance(operator, ast.In | ast.NotIn):
        return ""
    if is_literal_in(left, "cuda", "cuda:"):
        return f"{negated}any(kind in {site.text_of(right)} for kind in {render_types(helper, left)})"
    number = device_number_text(site, left) if device_literal(left) is not None else None
    if number:
        return f"{helper}.card({number}) {negated}in {site.text_of(right)}"
    if isinstance(right, ast.Tuple | ast.List | ast.Set):
        return f"{site.text_of(left)} {negated}in {render_members(site, right, helper)}"
    return ""


def render_types(helper: str, literal: ast.expr) -> str:
    """Return the expression for all types of card, each with a colon if the literal has one."""
    return f"{helper}.TYPES" if is_literal_in(literal, "cuda") else f'tuple(kind + ":" for kind in {helper}.TYPES)'


def report_split_text(site: Site, devices: Devices, call: ast.Call) -> None:
    """Report code that takes a device's text apart: `str(device).replace("cuda:", "")`."""
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
    splits_at_cuda = bool(call.args) and is_literal_in(call.args[0], "cuda", "cuda:")
    if receiver is not None and splits_at_cuda and devices.is_device(receiver):
        site.request_review(
            "this takes a device's text apart by 'cuda': use torch.device(…).index or .type",
            zh="此处按 'cuda' 拆分设备文本:请改用 torch.device(…).index 或 .type",
            node=call,
        )


def render_members(site: Site, collection: ast.Tuple | ast.List | ast.Set, helper: str) -> str:
    """Return `("cuda", "cpu")` with all types of card in place of "cuda"."""
    start, text = site.source.span(collection)[0], site.text_of(collection)
    for element in reversed(collection.elts):
        begin, end = (offset - start for offset in site.source.span(element))
        number = device_number_text(site, element) if device_literal(element) is not None else None
        if is_literal_in(element, "cuda"):
            text = f"{text[:begin]}*{helper}.TYPES{text[end:]}"
        elif number is not None:
            text = f"{text[:begin]}{helper}.card({number}){text[end:]}"
    return text


def replace_comparison(site: Site, node: ast.expr, text: str, reported: ast.AST) -> None:
    """Replace a comparison or a part of it; report it if another branch is for another card."""
    if site.file.is_left_alone(node) or report_if_in_torchscript(site, node):
        return
    if has_branch_for_another_card(site, node):
        site.request_review(
            "another branch here is for another card, and this one would be taken instead: see that each card has "
            "its branch",
            zh="此处另有针对其他加速卡的分支,改写后会被本分支取代:请确认各加速卡都有自己的分支",
            node=reported,
        )
        return
    site.edit.replace_node(node, text)
    site.report_change(
        "the branch for CUDA is now taken for any card", zh="针对 CUDA 的分支改为针对任意加速卡", node=reported
    )


def has_branch_for_another_card(site: Site, node: ast.AST) -> bool:
    """Return True for `if d.type == "cuda": … elif d.type == "npu": …`, in either order."""
    chain = next((parent for parent in site.source.ancestors(node) if isinstance(parent, ast.If | ast.IfExp)), None)
    if chain is None or not any(child is node for child in ast.walk(chain.test)):
        return False
    while isinstance(outer := site.source.parents.get(chain), ast.If | ast.IfExp) and else_branch(outer) is chain:
        chain = outer
    branch: ast.AST | None = chain
    while isinstance(branch, ast.If | ast.IfExp):
        if any(is_literal_in(inner, *OTHER_CARDS) for inner in ast.walk(branch.test)):
            return True
        branch = else_branch(branch)
    return False


def else_branch(branch: ast.If | ast.IfExp) -> ast.AST | None:
    """Return the expression after `else`, or the only statement; None if there are none or several."""
    if isinstance(branch, ast.IfExp):
        return branch.orelse
    return branch.orelse[0] if len(branch.orelse) == 1 else None


def report_cases(site: Site, devices: Devices, statement: ast.Match) -> None:
    """Report each `case "cuda":`."""
    messages = ('write case "cuda" | "npu" | "mlu":', '请改为 case "cuda" | "npu" | "mlu":')
    is_device = devices.is_device(statement.subject)
    for node in (node for case in statement.cases for node in ast.walk(case.pattern)):
        if isinstance(node, ast.MatchValue) and is_literal_in(node.value, "cuda"):
            site.request_review(
                *(messages if is_device else UNDECIDED), risk="medium" if is_device else "low", node=node
            )


@rule.node(ast.Attribute, only_if_file_contains=("is_cuda",))
def replace_is_cuda(site: Site) -> None:
    """Replace `is_cuda` of a tensor by a comparison of its device's type."""
    if (
        not may_be_tensor_attribute(site)
        or report_if_ambiguous(site, "x.device.type in accelerator.TYPES")
        or report_if_in_torchscript(site, site.node)
    ):
        return
    if not site.is_editable:
        site.request_review("write .device.type in accelerator.TYPES", zh="请改为 .device.type in accelerator.TYPES")
        return
    text = f"{site.text_of(site.node.value)}.device.type in {import_helper(site)}.TYPES"
    site.edit.replace_node(site.node, parenthesize(site, site.node, text))
    site.report_change("is_cuda becomes a test for any card", zh="is_cuda 改为判断是否位于任意加速卡")
