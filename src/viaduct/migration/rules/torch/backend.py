"""Name the accelerator's own collective backend.

     import torch.distributed as dist
    +import torch_npu
    -dist.init_process_group("nccl", init_method="env://")
    +dist.init_process_group("hccl", init_method="env://")

NCCL speaks to NVIDIA cards alone; Ascend has HCCL and Cambricon CNCL. The string is changed where it is written: in the
call, where a variable, a field or a dict gets it, or as the default and the choices of a command line option. A backend
that comes from elsewhere is left as written and named.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch import _collectives as collectives
from viaduct.migration.rules.torch._targets import card

rule = Rule(__name__, spec="P13", kind="mandatory", targets=("npu", "mlu"), order=60)

ROOT = "torch.distributed"
PLACES = {
    f"{ROOT}.init_process_group": 0,
    f"{ROOT}.new_group": 2,
    f"{ROOT}.new_subgroups": -1,
    f"{ROOT}.new_subgroups_by_enumeration": 2,
    f"{ROOT}.split_group": -1,
    f"{ROOT}.Backend": 0,
    f"{ROOT}.is_backend_available": 0,
    "torch.distributed.distributed_c10d.init_process_group": 0,
}
FLAGS = tuple(
    f"{home}.{name}"
    for home in ("absl.flags", "tensorflow.flags", "tensorflow.app.flags")
    for name in ("DEFINE_string", "DEFINE_enum")
)


@rule.call(*PLACES)
def process_group(site: Site) -> None:
    value = site.argument("backend", PLACES[site.name]) or unpacked_backend(site)
    if value is None:
        return
    found = collectives.origin(site, value)
    for text in found.texts:
        if collectives.swap(site, text):
            site.work.effects.add(card(site.options).module)  # importing it registers the backend
            collectives.say_swapped(site, text)
    if found.unknown and not found.texts and not collectives.serves_target(site, found.unknown[0]):
        leave(site, found.unknown[0])


def unpacked_backend(site: Site) -> ast.expr | None:
    """`init_process_group(**settings)` with settings written out in this file."""
    for word in site.node.keywords:
        items = collectives.dict_items(site.values.origin(word.value)) if word.arg is None else None
        for name, value in items or []:
            if name == "backend":
                return value
    return None


def leave(site: Site, value: ast.AST) -> None:
    new = card(site.options).backend
    site.manual(
        f"the backend is decided at run time ({site.text(value)}): where that is nccl it must become {new}",
        zh=f"通信后端在运行时决定({site.text(value)}):若为 nccl,须改为 {new}",
        risk="high",
    )


@rule.method("add_argument")
def argparse_option(site: Site) -> None:
    option(site)


@rule.call("click.option", "typer.Option", *FLAGS)
def other_option(site: Site) -> None:
    option(site)


def option(site: Site) -> None:
    """Default, const and choices of a command line option; its help text is not touched."""
    values = [word.value for word in site.node.keywords if word.arg in ("default", "const", "choices", "type")]
    if site.name != "add_argument":
        values += site.node.args[1:3]
    for value in values:
        for text in ast.walk(value):
            if isinstance(text, ast.Constant) and collectives.is_nccl(text) and collectives.swap(site, text):
                collectives.say_swapped(site, text)


@rule.node(ast.keyword, words=("nccl",))
def own_argument(site: Site) -> None:
    """`setup(backend="nccl")` of a function of the project, `TrainingArguments(ddp_backend="nccl")` of a library."""
    call = site.source.parents[site.node]
    if (
        not isinstance(call, ast.Call)
        or "backend" not in (site.node.arg or "")
        or not collectives.is_nccl(site.node.value)
    ):
        return
    name = site.qualified(call.func) or ""
    if name in PLACES or getattr(call.func, "id", "") == "dict":
        return
    if collectives.hands_backend_on(site, name):
        if collectives.swap(site, site.node.value):
            collectives.say_swapped(site, site.node.value)
    elif name and not name.startswith("torch."):
        new = card(site.options).backend
        site.manual(
            f"{name} is given the backend {site.text(site.node.value)}: for this card it is {new}, if it takes that",
            zh=f"{name} 的后端为 {site.text(site.node.value)}:对于该加速卡应为 {new}(若其支持)",
            risk="high",
        )


@rule.reference(f"{ROOT}.Backend.NCCL", "torch.distributed.distributed_c10d.Backend.NCCL")
def constant(site: Site) -> None:
    new = card(site.options).backend.upper()
    end = site.source.span(site.node)[1]
    if site.editable and site.source.text[end - 4 : end] == "NCCL":
        site.edit.replace(end - 4, end, new)
        site.work.effects.add(card(site.options).module)
        collectives.say_swapped(site, site.node)


@rule.call(f"{ROOT}.is_nccl_available", "torch.distributed.distributed_c10d.is_nccl_available")
def availability(site: Site) -> None:
    chosen = card(site.options)
    if isinstance(site.node.func, ast.Attribute) and site.editable:
        end = site.source.span(site.node.func)[1]
        site.edit.replace(end - len("is_nccl_available"), end, f"is_{chosen.backend}_available")
        site.work.effects.add(chosen.module)
        collectives.say_swapped(site, site.node)
        return
    site.manual(
        f"ask torch.distributed.is_{chosen.backend}_available(), which {chosen.module} adds",
        zh=f"请改用 {chosen.module} 提供的 torch.distributed.is_{chosen.backend}_available()",
    )


@rule.reference("torch.distributed.ProcessGroupNCCL.*", "torch.distributed.ProcessGroupNCCL")
@rule.call("torch.distributed.ProcessGroupNCCL.*", "torch.distributed.ProcessGroupNCCL")
def group_class(site: Site) -> None:
    if card(site.options).name == "mlu":
        cncl_class(site)
        return
    site.manual(
        "ProcessGroupNCCL has other options than HCCL: torch_npu._C._distributed_c10d.ProcessGroupHCCL.Options() has a "
        "dict hccl_config, and no is_high_priority_stream",
        zh="ProcessGroupNCCL 的选项与 HCCL 不同:请使用 torch_npu._C._distributed_c10d 中 "
        "ProcessGroupHCCL.Options() 的 hccl_config",
        risk="high",
    )


def cncl_class(site: Site) -> None:
    """torch_mlu puts ProcessGroupCNCL beside torch's own classes."""
    start, end = site.source.span(site.node.func if isinstance(site.node, ast.Call) else site.node)
    place = site.source.text.find("ProcessGroupNCCL", start, end)
    if place < 0 or not site.source.text[start:place].endswith(".") or not site.editable:
        site.manual("ProcessGroupNCCL is ProcessGroupCNCL here", zh="ProcessGroupNCCL 对应 ProcessGroupCNCL")
        return
    site.edit.replace(place, place + len("ProcessGroupNCCL"), "ProcessGroupCNCL")
    site.work.effects.add(card(site.options).module)
    site.changed("the group's class is ProcessGroupCNCL", zh="进程组类改为 ProcessGroupCNCL", risk="medium")
