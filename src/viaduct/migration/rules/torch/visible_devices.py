"""Choose the visible devices by the accelerator's own variable.

     import os
     import torch
    -os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
    +os.environ["ASCEND_RT_VISIBLE_DEVICES"] = "0,1"

Where the environment is read or set, where a child process gets one, and in commands for a shell. The NPU's variable
takes numbers in strictly ascending order, else no device is seen: a list such as `1,0` stays and is named. A list that
is put together at run time is carried over with a word of warning. Shell scripts of a project are treated in the same
way.
"""

from __future__ import annotations

import ast
import re

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch import _variables as variables
from viaduct.migration.rules.torch._environment import VISIBLE, can_be_carried, why_not
from viaduct.migration.rules.torch._targets import card
from viaduct.migration.rules.torch.device_string import imports_torch

rule = Rule(__name__, spec="P20 6", kind="mandatory", targets=("npu", "mlu"), order=80)

RUNNERS = ("os.system", "os.popen", "subprocess.")
ASSIGNED = re.compile(rf"\b{VISIBLE}=([\w,-]*)")


@rule.node(ast.Constant, words=(VISIBLE,))
def name_variable(site: Site) -> None:
    if site.node.value != VISIBLE or not imports_torch(site):
        return
    if not variables.is_variable(site, site.node) or not site.editable or VISIBLE not in site.text(site.node):
        return
    value = variables.value_of(site, site.node)
    if isinstance(value, ast.Constant) and not can_be_carried(str(value.value), card(site.options)):
        leave(site, str(value.value))
        return
    site.edit.node(site.node, site.text(site.node).replace(VISIBLE, card(site.options).visible))
    say(site)
    if value is not None and not isinstance(value, ast.Constant):
        warn(site)


@rule.node(ast.keyword, words=(VISIBLE,))
def name_keyword(site: Site) -> None:
    """`dict(os.environ, CUDA_VISIBLE_DEVICES="0")`."""
    if site.node.arg != VISIBLE or not imports_torch(site):
        return
    call, value = site.source.parents[site.node], site.node.value
    made = isinstance(call, ast.Call) and (
        site.qualified(call.func) == "os.environ.update"
        or any(site.qualified(one) == "os.environ" for one in call.args)
    )
    if not made or site.source.in_f_string(site.node):
        return
    if isinstance(value, ast.Constant) and not can_be_carried(str(value.value), card(site.options)):
        leave(site, str(value.value))
        return
    start = site.source.span(site.node)[0]
    site.edit.replace(start, start + len(VISIBLE), card(site.options).visible)
    say(site)


@rule.node(ast.Constant, ast.JoinedStr, words=(VISIBLE,))
def name_in_command(site: Site) -> None:
    """`os.system("CUDA_VISIBLE_DEVICES=0 python train.py")`."""
    if not site.editable or not imports_torch(site) or not is_command(site):
        return
    start, end = site.source.span(site.node)
    target = card(site.options)
    for match in ASSIGNED.finditer(site.source.text, start, end):
        rest = site.source.text[match.end() : match.end() + 1]
        if rest not in ("{", "%", "$") and not can_be_carried(match[1], target):
            leave(site, match[1])
        else:
            site.edit.replace(match.start(), match.start() + len(VISIBLE), target.visible)
            say(site)


def is_command(site: Site) -> bool:
    if isinstance(site.node, ast.Constant) and f"{VISIBLE}=" not in str(site.node.value):
        return False
    calls = [one for one in site.source.ancestors(site.node) if isinstance(one, ast.Call)]
    return any((site.qualified(call.func) or "").startswith(RUNNERS) for call in calls)


def say(site: Site) -> None:
    new = card(site.options).visible
    site.changed(f"{VISIBLE} becomes {new}", zh=f"{VISIBLE} 改为 {new}")


def leave(site: Site, value: str) -> None:
    english, chinese = why_not(value, card(site.options))
    site.manual(english, zh=chinese, risk="high")


def warn(site: Site) -> None:
    if card(site.options).name == "npu":
        site.advice(
            "see that the list ascends strictly (0,1,3; not 1,0): else the NPU's runtime sees no device",
            zh="请确保列表严格升序(如 0,1,3,不能是 1,0),否则看不到任何昇腾设备",
        )
