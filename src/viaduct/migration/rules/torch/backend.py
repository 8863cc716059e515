"""Replace the collective backend NCCL by the card's backend.

     import torch.distributed as dist
    +import torch_npu
    -dist.init_process_group("nccl", init_method="env://")
    +dist.init_process_group("hccl", init_method="env://")

NCCL supports NVIDIA GPUs only; Ascend has HCCL and Cambricon CNCL. The rule edits the string in the call, in the
assignment of a variable, a field or a dict, or in the default and the choices of a command line option. A backend of
any other origin stays and is reported.

With `--to any` the helper module accelerator_device returns the backend of the available card, or gloo without a card:

     import torch.distributed as dist
    -dist.init_process_group("nccl")
    +from accelerator_device import accelerator
    +dist.init_process_group(accelerator.backend())
"""

from __future__ import annotations

import ast

from viaduct.cards.limits import Bilingual
from viaduct.migration.rule import ALL_TARGETS, Rule, Site
from viaduct.migration.rules.torch import _collectives as collectives
from viaduct.migration.rules.torch._options import DECLARATIONS, get_option_values
from viaduct.migration.targets import import_helper

rule = Rule(__name__, target_needs="backend", spec_rows=("P13",), targets=ALL_TARGETS, former_names=("any_backend",))

DISTRIBUTED = "torch.distributed"
BACKEND_POSITIONS = {
    f"{DISTRIBUTED}.init_process_group": 0,
    f"{DISTRIBUTED}.new_group": 2,
    f"{DISTRIBUTED}.new_subgroups": 3,
    f"{DISTRIBUTED}.new_subgroups_by_enumeration": 2,
    f"{DISTRIBUTED}.split_group": 5,
    f"{DISTRIBUTED}.Backend": 0,
    f"{DISTRIBUTED}.is_backend_available": 0,
    f"{DISTRIBUTED}.distributed_c10d.init_process_group": 0,
}
"""Functions that take a backend, and its position among their arguments."""
PROCESS_GROUP_CLASS = (f"{DISTRIBUTED}.ProcessGroupNCCL.*", f"{DISTRIBUTED}.ProcessGroupNCCL")
DEVICE_DEPENDENT = (".backend()", "get_default_backend_for_device(")
"""Texts in an expression that chooses the backend by the available device."""
# A message for one card, and one for `--to any`. The expression that decides the backend is inserted last, at {}:
RUN_TIME_BACKEND: tuple[Bilingual, Bilingual] = (
    (
        "the backend is decided at run time ({{}}): where that is nccl it must become {card.backend}",
        "通信后端在运行时决定({{}}):若为 nccl,须改为 {card.backend}",
    ),
    (
        "the backend is decided at run time ({}): nccl works on CUDA only; use accelerator.backend()",
        "通信后端在运行时决定({}):nccl 仅适用于 CUDA,请使用 accelerator.backend()",
    ),
)
GROUP_CLASS_REVIEW: tuple[Bilingual, Bilingual] = (
    (
        "ProcessGroupNCCL has other options than HCCL: {card.plugin}._C._distributed_c10d.ProcessGroupHCCL.Options() "
        "has a dict hccl_config, and no is_high_priority_stream",
        "ProcessGroupNCCL 的选项与 HCCL 不同:请使用 {card.plugin}._C._distributed_c10d 中 "
        "ProcessGroupHCCL.Options() 的字典 hccl_config,且没有 is_high_priority_stream",
    ),
    (
        'ProcessGroupNCCL exists in builds of torch with CUDA only: put it under `if accelerator.name() == "cuda":`',
        'ProcessGroupNCCL 仅 CUDA 可用,不带 CUDA 的 torch 没有该类:请置于 if accelerator.name() == "cuda": 之下',
    ),
)
AVAILABILITY_REVIEW: tuple[Bilingual, Bilingual] = (
    (
        "call torch.distributed.is_{card.backend}_available(), which {card.plugin} adds",
        "请改用 {card.plugin} 提供的 torch.distributed.is_{card.backend}_available()",
    ),
    ("call is_backend_available(accelerator.backend())", "请改用 is_backend_available(accelerator.backend())"),
)


@rule.call(*BACKEND_POSITIONS)
def replace_in_call(site: Site) -> None:
    """Replace NCCL in an argument of torch.distributed; report a backend that is decided at run time.

    With `--to any` pass `device_id` only if there is a card.
    """
    value = site.argument("backend", BACKEND_POSITIONS[site.name]) or find_unpacked_backend(site)
    origin = collectives.trace_backend(site, value) if value is not None else collectives.BackendOrigin()
    for text in origin.nccl_strings:
        if collectives.replace_backend(site, text):
            site.target.require_plugin(site)  # importing it registers the backend
    unknown_values = origin.unknown_values if value is not None else find_hiding_arguments(site)
    unsuited = [unknown for unknown in unknown_values if not suits_target(site, unknown)]
    if unsuited:
        expression = site.text_of(unsuited[0])
        english, chinese = site.target.select_message(*RUN_TIME_BACKEND)
        site.request_review(english.format(expression), zh=chinese.format(expression), risk="high")
    if site.target.is_any_card:
        make_device_id_conditional(site)


def find_unpacked_backend(site: Site) -> ast.expr | None:
    """Return the backend of `init_process_group(**settings)` if this file shows the settings."""
    for keyword in site.node.keywords:
        items = collectives.get_dict_items(site.values.assigned_value(keyword.value)) if keyword.arg is None else None
        for name, value in items or []:
            if name == "backend":
                return value
    return None


def find_hiding_arguments(site: Site) -> list[ast.AST]:
    """Return the `*` arguments, and the `**` arguments whose dict this file does not show."""
    starred = [value for value in site.node.args if isinstance(value, ast.Starred)]
    unpacked = [keyword for keyword in site.node.keywords if keyword.arg is None]
    return starred + [
        keyword for keyword in unpacked if collectives.get_dict_items(site.values.assigned_value(keyword.value)) is None
    ]


def suits_target(site: Site, value: ast.AST) -> bool:
    """Return True if a backend that is decided at run time is right for the target."""
    if site.target.is_any_card:
        return any(text in site.text_of(value) for text in DEVICE_DEPENDENT)
    return collectives.follows_device(site, value)


def make_device_id_conditional(site: Site) -> None:
    """Pass `device_id` only if there is a card: gloo does not accept it."""
    keyword = site.keyword("device_id")
    if keyword is not None and "unless_cpu" not in site.text_of(keyword):
        site.edit.replace_node(keyword.value, f"{import_helper(site)}.unless_cpu({site.text_of(keyword.value)})")
        site.report_change("gloo accepts no device_id", zh="gloo 不接受 device_id")


@rule.method("add_argument")
@rule.call(*DECLARATIONS)
def replace_in_option(site: Site) -> None:
    """Change the values of an option, also in `type=click.Choice(["nccl", "gloo"])`; its help text stays."""
    for value in get_option_values(site, site.node):
        for text in ast.walk(value):
            if isinstance(text, ast.Constant) and collectives.is_nccl(text):
                collectives.replace_backend(site, text)


@rule.node(ast.keyword, only_if_file_contains=("nccl",))
def replace_in_own_call(site: Site) -> None:
    """Replace NCCL in `setup(backend="nccl")` of the project, `TrainingArguments(ddp_backend="nccl")` of a library.

    For one card, NCCL in a call of a library that may take other names for backends is reported.
    """
    call = site.source.parents[site.node]
    names_backend = "backend" in (site.node.arg or "") and collectives.is_nccl(site.node.value)
    if not isinstance(call, ast.Call) or not names_backend:
        return
    name = site.qualified_name(call.func) or ""
    if name in BACKEND_POSITIONS:
        return
    if collectives.takes_backend_name(site, name):
        collectives.replace_backend(site, site.node.value)
    elif name and not name.startswith("torch.") and not site.target.is_any_card:
        new = site.target.card.backend
        site.request_review(
            f"{name} gets the backend {site.text_of(site.node.value)}: "
            f"for this card it is {new}, if {name} accepts that",
            zh=f"{name} 的后端为 {site.text_of(site.node.value)}:对于该加速卡应为 {new}(若其支持)",
            risk="high",
        )


@rule.reference(f"{DISTRIBUTED}.Backend.NCCL", f"{DISTRIBUTED}.distributed_c10d.Backend.NCCL")
def replace_constant(site: Site) -> None:
    """Replace `Backend.NCCL`; with `--to any` the rule `backend_compare` edits it in comparisons."""
    if site.target.is_any_card:
        if site.is_editable and not isinstance(site.source.parents.get(site.node), ast.Compare):
            site.rename(site.target.render_backend(site))
            collectives.report_replaced(site, site.node)
        return
    end = site.source.span(site.node)[1]
    if site.is_editable and site.source.text[end - len("NCCL") : end] == "NCCL":
        site.edit.replace(end - len("NCCL"), end, site.target.card.backend.upper())
        site.target.require_plugin(site)
        collectives.report_replaced(site, site.node)


@rule.call(f"{DISTRIBUTED}.is_nccl_available", f"{DISTRIBUTED}.distributed_c10d.is_nccl_available")
def replace_availability(site: Site) -> None:
    if not isinstance(site.node.func, ast.Attribute) or not site.is_editable:
        site.request_review(*site.target.select_message(*AVAILABILITY_REVIEW))
        return
    if site.target.is_any_card:
        root = site.text_of(site.node.func.value)
        site.edit.replace_node(site.node, f"{root}.is_backend_available({site.target.render_backend(site)})")
    else:
        site.edit.replace_attribute(site.node.func, f"is_{site.target.card.backend}_available")
        site.target.require_plugin(site)
    collectives.report_replaced(site, site.node)


@rule.use(*PROCESS_GROUP_CLASS)
def replace_group_class(site: Site) -> None:
    """Write ProcessGroupCNCL, which torch_mlu adds to torch, for the MLU; report the class for other targets."""
    if site.options.to != "mlu":
        site.request_review(*site.target.select_message(*GROUP_CLASS_REVIEW), risk="high")
        return
    start, end = site.source.span(site.name_node)
    position = site.source.text.find("ProcessGroupNCCL", start, end)
    if position < 0 or not site.source.text[start:position].endswith(".") or not site.is_editable:
        site.request_review("ProcessGroupNCCL is ProcessGroupCNCL here", zh="ProcessGroupNCCL 对应 ProcessGroupCNCL")
        return
    site.edit.replace(position, position + len("ProcessGroupNCCL"), "ProcessGroupCNCL")
    site.target.require_plugin(site)
    site.report_change("the group's class is ProcessGroupCNCL", zh="进程组类改为 ProcessGroupCNCL", risk="medium")
