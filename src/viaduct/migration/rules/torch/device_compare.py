"""Replace CUDA by the card in comparisons of a device.

     import torch
     import torch_npu
     def fast(x: torch.Tensor) -> bool:
    -    return x.device.type == "cuda"
    +    return x.device.type == "npu"

The rule edits `==`, `!=`, `in`, `match`, and methods such as `startswith`, if a device, its type or its text is
compared. A comparison of something that may be no device is reported. `device_key` reports dictionaries whose keys are
device types.

With `--to any` a device is compared with every kind of card; else an NPU would silently take the branch for the CPU:

     import torch
    -if device.type == "cuda":
    +from accelerator_device import accelerator
    +if device.type in accelerator.TYPES:
         benchmark()
    -if device == torch.device("cuda:0"):
    +if device == torch.device(accelerator.card(0)):
         report()

The helper module accelerator_device, which the migration adds to the project, has TYPES, the types of all cards as a
tuple, which `startswith` accepts too. `accelerator.card(0)` is "cuda:0", "npu:0" or "mlu:0". Without a card it is
"cuda:0" too, since "cpu" would select the branch for the card. `match` and methods that take a text apart are reported.
"""

from __future__ import annotations

import ast

from viaduct.cards.limits import Bilingual
from viaduct.migration.device_texts import device_literal, device_number_text, is_cuda_device
from viaduct.migration.lookups import elements
from viaduct.migration.predicates import is_in_torch_program, is_literal_in
from viaduct.migration.rule import ALL_TARGETS, Rule, Site
from viaduct.migration.rules.torch._devices import UNEDITABLE_DEVICE, Devices, find_devices, find_texts_in_constructor
from viaduct.migration.rules.torch._helper import report_if_in_torchscript
from viaduct.migration.targets import import_helper

rule = Rule(
    __name__,
    target_needs="device_strings",
    spec_rows=("P9", "P10"),
    targets=ALL_TARGETS,
    former_names=("any_device_compare",),
)

OTHER_CARDS = ("npu", "mlu", "xpu", "hpu", "musa")
TEXT_METHODS = (
    "startswith", "replace", "removeprefix", "split", "partition", "find", "index", "count", "lstrip", "strip",
)  # fmt: skip
EDITED_OPERATORS = ast.Eq | ast.NotEq | ast.In | ast.NotIn
TYPE_ADVICE = ("compare with accelerator.TYPES here", "请在此处与 accelerator.TYPES 比较")
NUMBER_ADVICE = ("compare with accelerator.card(NUMBER) here", "请在此处与 accelerator.card(编号) 比较")
CASE_ADVICE = ('write case "cuda" | "npu" | "mlu":', '请改为 case "cuda" | "npu" | "mlu":')
SPLIT_ADVICE = (
    "this takes a device's text apart by 'cuda': use torch.device(…).index or .type",
    "此处按 'cuda' 拆分设备文本:请改用 torch.device(…).index 或 .type",
)
# A message for one card, and one for `--to any`:
UNDECIDED: tuple[Bilingual, Bilingual] = (
    (
        "this compares 'cuda' with something that may be no device: unchanged; if it is one, write {card.device}",
        "与 'cuda' 比较,但未能确认是设备:保持不变;若是设备,请改为 {card.device}",
    ),
    (
        "this compares 'cuda' with something that may be no device: unchanged; if it is one, use accelerator.TYPES",
        "与 'cuda' 比较,但未能确认是设备:保持不变;若是设备,请与 accelerator.TYPES 比较",
    ),
)


@rule.file(only_if_file_contains=('"cuda', "'cuda"))
def edit_comparisons(site: Site) -> None:
    """Change comparisons of a device with CUDA; report comparisons of something that may be no device."""
    if not is_in_torch_program(site):
        return
    devices = find_devices(site)
    for node in site.source.nodes_of_types(ast.Compare, ast.Call, ast.Match):
        if isinstance(node, ast.Compare):
            edit_comparison(site, devices, node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in TEXT_METHODS:
            if node.args and has_cuda_text(node.args[0]) and devices.is_device(node.func.value):
                edit_method(site, node)
        elif isinstance(node, ast.Match):
            edit_cases(site, node, devices.is_device(node.subject))


def edit_comparison(site: Site, devices: Devices, node: ast.Compare) -> None:
    """Change a comparison of a device with a CUDA text; report one of something that may be no device."""
    sides = [node.left, *node.comparators]
    for literal in (literal for side in sides for literal in find_texts_in_constructor(site, side)):
        edit_constructor_text(site, literal)
    for left, operator, right in zip(sides, node.ops, node.comparators, strict=False):
        for texts, device in ((left, right), (right, left)):
            if not isinstance(operator, EDITED_OPERATORS) or not has_cuda_text(texts):
                continue
            is_membership_key = isinstance(operator, ast.In | ast.NotIn) and texts is left  # `"cuda" in state`
            if not devices.is_device(device):
                if any(map(is_cuda_device, elements(texts))) and not is_membership_key:
                    report_undecided(site, node)
            elif site.target.is_any_card:
                compare_with_any_card(site, node)
            elif not compare_with_both(site, node, texts, device):
                replace_texts(site, texts)


def has_cuda_text(value: ast.expr) -> bool:
    """Return True for a text of a CUDA device, and for a tuple, list or set with one."""
    return any(device_literal(part) is not None for part in elements(value))


def edit_constructor_text(site: Site, literal: ast.expr) -> None:
    """Replace CUDA in the `torch.device("cuda:0")` of a comparison: by the card, or by `accelerator.card(0)`."""
    if not site.target.is_any_card:
        replace_texts(site, literal)
        return
    number = device_number_text(site.source, literal)
    if number is None or site.source.is_in_f_string(literal):
        site.request_review(*NUMBER_ADVICE, node=literal)
    else:
        replace_for_any_card(site, literal, f"{import_helper(site, literal)}.card({number})", literal)


def edit_method(site: Site, call: ast.Call) -> None:
    """Replace CUDA in the argument of a method such as `device.startswith("cuda")`.

    With `--to any` only startswith is edited, and other methods are reported.
    """
    text, method = call.args[0], call.func.attr  # type: ignore[attr-defined]
    if not site.target.is_any_card:
        replace_texts(site, text)
    elif method == "startswith" and is_literal_in(text, "cuda", "cuda:"):
        replace_for_any_card(site, text, render_types(import_helper(site, call), text), call)
    else:
        site.request_review(*SPLIT_ADVICE, node=call)


def edit_cases(site: Site, statement: ast.Match, is_device: bool) -> None:
    """Replace CUDA in the cases of a `match` over a device; `case "cuda":` of any other `match` is reported."""
    patterns = (inner for case in statement.cases for inner in ast.walk(case.pattern))
    for value in (pattern.value for pattern in patterns if isinstance(pattern, ast.MatchValue)):
        if is_device and has_cuda_text(value):
            if site.target.is_any_card:
                site.request_review(*CASE_ADVICE, node=value)
            else:
                replace_texts(site, value)
        elif is_cuda_device(value):
            report_undecided(site, value)


def report_undecided(site: Site, node: ast.expr) -> None:
    """Report a comparison with 'cuda' of something that may be no device."""
    site.request_review(*site.target.select_message(*UNDECIDED), risk="low", node=node)


# ---- one card


def replace_texts(site: Site, value: ast.expr) -> None:
    """Replace CUDA by the card in the texts of a value, unless one of them is the card."""
    device = site.target.card.device
    if any(is_literal_in(part, device) for part in elements(value)):
        return
    for text in (part for part in elements(value) if device_literal(part) is not None):
        if site.file.is_left_alone(text):
            continue
        new = site.target.render_device_text(site, text)
        if new is None:
            site.request_review(*site.target.select_message(*UNEDITABLE_DEVICE), node=text)
        else:
            site.edit.replace_node(text, new)
            site.report_change(f"the device is compared with {device}", zh=f"设备改为与 {device} 比较", node=text)


def compare_with_both(site: Site, node: ast.Compare, texts: ast.expr, device: ast.expr) -> bool:
    """Turn `device.type == "cuda"` into a test for CUDA and the card, in a file with code for both.

    Return False if it is another comparison, or decides on a branch for one of the cards.
    """
    if not site.file.target_code_lines or not is_literal_in(texts, "cuda"):
        return False
    if len(node.ops) != 1 or not isinstance(node.ops[0], ast.Eq | ast.NotEq) or site.source.is_in_f_string(node):
        return False
    if site.file.is_left_alone(node) or not (isinstance(device, ast.Attribute) and device.attr == "type"):
        return False
    if is_branch_for_one_card(site, node):
        return False
    name = site.target.card.device
    negated = "not in" if isinstance(node.ops[0], ast.NotEq) else "in"
    site.edit.replace_node(node, f'{site.text_of(device)} {negated} ("cuda", "{name}")')
    site.report_change(f"the device is compared with {name} too", zh=f"设备同时与 {name} 比较", node=node)
    return True


def is_branch_for_one_card(site: Site, node: ast.Compare) -> bool:
    """Return True if the branch that the comparison decides on calls functions of CUDA or the card."""
    call_texts = ("torch.cuda", ".cuda(", f".{site.target.card.device}.", f".{site.target.card.device}(")
    for parent in site.source.ancestors(node):
        if isinstance(parent, ast.If | ast.IfExp | ast.While):
            body = [parent.body] if isinstance(parent.body, ast.expr) else parent.body
            return any(text in site.text_of(statement) for statement in body for text in call_texts)
        if isinstance(parent, ast.stmt):
            return False
    return False


# ---- any card


def compare_with_any_card(site: Site, node: ast.Compare) -> None:
    """Turn a comparison with CUDA into one with every kind of card, or report it."""
    sides = [node.left, *node.comparators]
    has_constructor = any(any(True for _ in find_texts_in_constructor(site, side)) for side in sides)
    if len(sides) != 2 or has_constructor or site.source.is_in_f_string(node):
        site.request_review(*TYPE_ADVICE, node=node)
        return
    text = render_comparison(site, node.left, node.ops[0], node.comparators[0])
    if text:
        replace_for_any_card(site, node, text, node)
    else:
        site.request_review(*NUMBER_ADVICE, node=node)


def render_comparison(site: Site, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> str:
    """Return a comparison of a device with CUDA as one with any card; "" if no such form is known."""
    helper = import_helper(site, left)
    negated = "not " if isinstance(operator, ast.NotEq | ast.NotIn) else ""
    if isinstance(operator, ast.Eq | ast.NotEq):
        text, device = (left, right) if device_literal(left) is not None else (right, left)
        if is_literal_in(text, "cuda"):
            return f"{site.text_of(device)} {negated}in {helper}.TYPES"
        number = device_number_text(site.source, text)
        equality = "!=" if negated else "=="
        return f"{site.text_of(device)} {equality} {helper}.card({number})" if number is not None else ""
    if is_literal_in(left, "cuda", "cuda:"):
        return f"{negated}any(kind in {site.text_of(right)} for kind in {render_types(helper, left)})"
    number = device_number_text(site.source, left) if device_literal(left) is not None else None
    if number:
        return f"{helper}.card({number}) {negated}in {site.text_of(right)}"
    if isinstance(right, ast.Tuple | ast.List | ast.Set):
        return f"{site.text_of(left)} {negated}in {render_members(site, right, helper)}"
    return ""


def render_types(helper: str, literal: ast.expr) -> str:
    """Return the expression for all types of card, each with a colon if the literal has one."""
    return f"{helper}.TYPES" if is_literal_in(literal, "cuda") else f'tuple(kind + ":" for kind in {helper}.TYPES)'


def render_members(site: Site, collection: ast.Tuple | ast.List | ast.Set, helper: str) -> str:
    """Return the code of `("cuda", "cpu")` with all types of card in place of "cuda"."""
    start, text = site.source.span(collection)[0], site.text_of(collection)
    for element in reversed(collection.elts):
        begin, end = (offset - start for offset in site.source.span(element))
        number = device_number_text(site.source, element) if device_literal(element) is not None else None
        if is_literal_in(element, "cuda"):
            text = f"{text[:begin]}*{helper}.TYPES{text[end:]}"
        elif number is not None:
            text = f"{text[:begin]}{helper}.card({number}){text[end:]}"
    return text


def replace_for_any_card(site: Site, node: ast.expr, text: str, reported: ast.AST) -> None:
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
    while isinstance(outer := site.source.parents.get(chain), ast.If | ast.IfExp) and get_else_branch(outer) is chain:
        chain = outer
    branch: ast.AST | None = chain
    while isinstance(branch, ast.If | ast.IfExp):
        if any(is_literal_in(inner, *OTHER_CARDS) for inner in ast.walk(branch.test)):
            return True
        branch = get_else_branch(branch)
    return False


def get_else_branch(branch: ast.If | ast.IfExp) -> ast.AST | None:
    """Return the expression after `else`, or the only statement; None if there are none or several."""
    if isinstance(branch, ast.IfExp):
        return branch.orelse
    return branch.orelse[0] if len(branch.orelse) == 1 else None
