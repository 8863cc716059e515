"""Replace CUDA_VISIBLE_DEVICES by the card's variable.

     import os
     import torch
    -os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
    +os.environ["ASCEND_RT_VISIBLE_DEVICES"] = "0,1"

The rule renames the variable in reads and writes of the environment, in the environment of a child process, and in
shell commands. The NPU's variable needs numbers in strictly ascending order, else no device is visible: a list such as
`1,0` stays and is reported, and an assigned list that is composed at run time gets advice. Shell scripts of a project
are edited in the same way.

With `--to any` an assignment sets the variables of all cards, since the NPU does not read CUDA's. Other uses of the
variable in Python code get advice, except in shell commands:

     from os import environ
     import torch
    -environ["CUDA_VISIBLE_DEVICES"] = gpus
    +environ["CUDA_VISIBLE_DEVICES"] = environ["ASCEND_RT_VISIBLE_DEVICES"] = environ["MLU_VISIBLE_DEVICES"] = gpus
"""

from __future__ import annotations

import ast
import re

from viaduct.cards import CARDS, NPU
from viaduct.cards.environment import (
    CHECK_DEVICE_ORDER,
    CUDA_VISIBLE_DEVICES,
    EVERY_CARD_IS_SET,
    explain_refused_devices,
    is_valid_device_list,
)
from viaduct.migration.predicates import is_in_torch_program
from viaduct.migration.rule import ALL_TARGETS, Rule, Site
from viaduct.migration.rules.torch import _environment_variables as variables

rule = Rule(
    __name__,
    target_needs="visible_devices",
    spec_rows=("P20", "6"),
    targets=ALL_TARGETS,
    former_names=("any_visible_devices",),
)

RUNNERS = ("os.system", "os.popen", "subprocess.")
ASSIGNMENT = re.compile(rf"\b{CUDA_VISIBLE_DEVICES}=([\w,-]*)")


@rule.node(ast.Constant, only_if_file_contains=(CUDA_VISIBLE_DEVICES,))
def replace_variable(site: Site) -> None:
    """Rename the variable in Python code that reads or sets it; with `--to any` set the variables of all cards."""
    if site.node.value != CUDA_VISIBLE_DEVICES or not is_in_torch_program(site):
        return
    if site.target.is_any_card:
        replace_by_every_variable(site)
        return
    code = site.text_of(site.node)  # may be split, as in "CUDA_" "VISIBLE_DEVICES"
    if not variables.is_variable_name(site, site.node) or not site.is_editable or CUDA_VISIBLE_DEVICES not in code:
        return
    value, card = variables.get_assigned_value(site, site.node), site.target.card
    if report_if_refused(site, value):
        return
    site.edit.replace_node(site.node, code.replace(CUDA_VISIBLE_DEVICES, card.visible_variable))
    report_renamed(site)
    if card is NPU and value is not None and not isinstance(value, ast.Constant):
        site.advise(*CHECK_DEVICE_ORDER)


@rule.node(ast.keyword, only_if_file_contains=(CUDA_VISIBLE_DEVICES,))
def replace_keyword(site: Site) -> None:
    """Rename the variable in `dict(os.environ, CUDA_VISIBLE_DEVICES="0")` and `os.environ.update(…)`.

    With `--to any` only advise.
    """
    if site.node.arg != CUDA_VISIBLE_DEVICES or not is_in_torch_program(site):
        return
    call, value = site.source.parents[site.node], site.node.value
    is_dict = isinstance(call, ast.Call) and any(site.qualified_name(part) == "os.environ" for part in call.args)
    is_set = is_dict or (isinstance(call, ast.Call) and variables.is_update(site, call))
    if site.source.is_in_f_string(site.node) or not is_set:
        return
    if site.target.is_any_card:
        advise_on_other_cards(site)
        return
    if report_if_refused(site, value):
        return
    site.edit.rename_keyword(site.node, site.target.card.visible_variable)
    report_renamed(site)


@rule.node(ast.Constant, ast.JoinedStr, only_if_file_contains=(CUDA_VISIBLE_DEVICES,))
def replace_in_command(site: Site) -> None:
    """For one card rename the variable in `os.system("CUDA_VISIBLE_DEVICES=0 python train.py")`."""
    if site.target.is_any_card or not site.is_editable or not is_in_torch_program(site) or not is_command(site):
        return
    start, end = site.source.span(site.node)
    card = site.target.card
    for match in ASSIGNMENT.finditer(site.source.text, start, end):
        following = site.source.text[match.end() : match.end() + 1]
        is_composed_at_run_time = following in ("{", "%", "$")
        if not is_composed_at_run_time and not is_valid_device_list(match[1], card):
            report_device_list(site, match[1])
        else:
            site.edit.replace(match.start(), match.start() + len(CUDA_VISIBLE_DEVICES), card.visible_variable)
            report_renamed(site)


def replace_by_every_variable(site: Site) -> None:
    """Set the variables of all cards in an assignment to CUDA_VISIBLE_DEVICES; advise on other uses."""
    parent = site.source.parents[site.node]
    if isinstance(parent, ast.Expr):  # a docstring
        return
    if isinstance(parent, ast.Subscript) and site.qualified_name(parent.value) == "os.environ":
        statement = site.source.parents[parent]
        if isinstance(statement, ast.Assign) and parent in statement.targets:
            assign_every_variable(site, statement, parent)
            return
    advise_on_other_cards(site)


def advise_on_other_cards(site: Site) -> None:
    """Advise on the variables of other cards, unless the statement has one."""
    text = site.text_of(site.source.statement_around(site.node)).replace(CUDA_VISIBLE_DEVICES, "")
    if site.is_editable and "VISIBLE_DEVICES" not in text:
        names = ", ".join(card.visible_variable for card in CARDS.values())
        site.advise(f"other cards have their own variables: {names}", zh=f"其他加速卡使用各自的变量:{names}")


def assign_every_variable(site: Site, statement: ast.Assign, target: ast.Subscript) -> None:
    """Assign the value to the variables of all cards, unless the statement does; report a value that NPUs refuse."""
    targets = [site.text_of(node) for node in statement.targets]
    if any("ASCEND" in text or "MLU" in text for text in targets):
        return
    value = statement.value
    if isinstance(value, ast.Constant) and not is_valid_device_list(str(value.value), NPU):
        site.request_review(*explain_refused_devices(str(value.value), NPU))
        return
    names = [site.text_of(site.node).replace(CUDA_VISIBLE_DEVICES, card.visible_variable) for card in CARDS.values()]
    others = [f"{site.text_of(target.value)}[{name}] = " for name in names]
    equals = next(site.source.tokens_from(site.source.span(target)[1]))
    site.edit.insert(equals.end, f" {''.join(others).rstrip()}")
    site.report_change(*EVERY_CARD_IS_SET, risk="medium")


def is_command(site: Site) -> bool:
    """Return True for a shell command, or a part of one, that sets or may set the variable."""
    if isinstance(site.node, ast.Constant) and f"{CUDA_VISIBLE_DEVICES}=" not in str(site.node.value):
        return False
    calls = [parent for parent in site.source.ancestors(site.node) if isinstance(parent, ast.Call)]
    return any((site.qualified_name(call.func) or "").startswith(RUNNERS) for call in calls)


def report_renamed(site: Site) -> None:
    new = site.target.card.visible_variable
    site.report_change(f"{CUDA_VISIBLE_DEVICES} becomes {new}", zh=f"{CUDA_VISIBLE_DEVICES} 改为 {new}")


def report_if_refused(site: Site, value: ast.expr | None) -> bool:
    """Report a literal list of devices that the card does not accept; return True if it is reported."""
    is_refused = isinstance(value, ast.Constant) and not is_valid_device_list(str(value.value), site.target.card)
    if is_refused:
        report_device_list(site, str(value.value))  # type: ignore[union-attr]
    return is_refused


def report_device_list(site: Site, value: str) -> None:
    site.request_review(*explain_refused_devices(value, site.target.card), risk="high")
