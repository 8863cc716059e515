"""Take the collective backend of whatever card there is.

     import torch.distributed as dist
    -dist.init_process_group("nccl")
    +from accelerator_device import accelerator
    +dist.init_process_group(accelerator.backend())

NCCL for CUDA, HCCL for an NPU, CNCL for an MLU, gloo without a card. The string is changed where it is written: in the
call, in a variable or a dict that reaches it, as the default or a choice of a command line option; and a comparison
with "nccl" asks for any of the three.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch import _collectives as collectives
from viaduct.migration.rules.torch._any import helper
from viaduct.migration.rules.torch._device_texts import is_text
from viaduct.migration.rules.torch.backend import FLAGS, PLACES, ROOT, unpacked_backend
from viaduct.migration.rules.torch.backend_compare import is_backend

rule = Rule(__name__, spec="P13", kind="mandatory", targets=("any",), order=60)
EXAMPLE_OPTIONS = {"to": "any"}


@rule.call(*PLACES)
def process_group(site: Site) -> None:
    value = site.argument("backend", PLACES[site.name]) or unpacked_backend(site)
    found = collectives.origin(site, value) if value is not None else collectives.Origin()
    for text in found.texts:
        change(site, text)
    if found.unknown and not found.texts:
        leave(site, found.unknown)
    bound = site.keyword("device_id")
    if bound is not None and "unless_cpu" not in site.text(bound):
        site.edit.node(bound.value, f"{helper(site)}.unless_cpu({site.text(bound.value)})")
        site.changed("gloo takes no device_id", zh="gloo 不接受 device_id")


def leave(site: Site, unknown: list[ast.AST]) -> None:
    """Not where the helper is asked already."""
    given = [site.text(one) for one in unknown]
    follows = (".backend()", "get_default_backend_for_device(")
    if not any(sign in text for text in given for sign in follows):
        site.manual(
            f"the backend is decided at run time ({given[0]}): nccl is CUDA's alone; accelerator.backend() is right",
            zh=f"通信后端在运行时决定({given[0]}):nccl 仅适用于 CUDA,请使用 accelerator.backend()",
            risk="high",
        )


@rule.method("add_argument")
def argparse_option(site: Site) -> None:
    option(site)


@rule.call("click.option", "typer.Option", *FLAGS)
def other_option(site: Site) -> None:
    option(site)


def option(site: Site) -> None:
    for word in site.node.keywords:
        if word.arg in ("default", "const", "choices"):
            for text in ast.walk(word.value):
                if isinstance(text, ast.Constant) and collectives.is_nccl(text):
                    change(site, text)


@rule.node(ast.keyword, words=("nccl",))
def given_elsewhere(site: Site) -> None:
    """`setup(backend="nccl")` of a function of the project, `TrainingArguments(ddp_backend="nccl")` of a library."""
    call = site.source.parents[site.node]
    if isinstance(call, ast.Call) and "backend" in (site.node.arg or "") and collectives.is_nccl(site.node.value):
        name = site.qualified(call.func) or ""
        if name not in PLACES and collectives.hands_backend_on(site, name):
            change(site, site.node.value)


def change(site: Site, text: ast.Constant) -> None:
    if (
        ("any", text) in site.work.seen
        or site.work.is_served(text)
        or isinstance(site.source.parents.get(text), ast.Compare)
    ):
        return
    site.work.seen[("any", text)] = None
    if not is_text(text, "nccl", "NCCL") or site.source.in_f_string(text):
        site.manual(
            "this names NCCL: put it together from accelerator.name() and accelerator.backend()",
            zh="此处指定了 NCCL:请用 accelerator.name() 与 accelerator.backend() 组成",
            node=text,
        )
        return
    site.edit.node(text, f"{helper(site, text)}.backend()")
    say(site, text)


def say(site: Site, node: ast.AST) -> None:
    site.changed("the backend is that of whatever card there is", zh="通信后端取决于现有的加速卡", node=node)


@rule.reference(f"{ROOT}.Backend.NCCL", "torch.distributed.distributed_c10d.Backend.NCCL")
def constant(site: Site) -> None:
    if site.editable and not isinstance(site.source.parents.get(site.node), ast.Compare):
        site.rename(f"{helper(site)}.backend()")
        say(site, site.node)


@rule.call(f"{ROOT}.is_nccl_available", "torch.distributed.distributed_c10d.is_nccl_available")
def availability(site: Site) -> None:
    """is_backend_available asks is_nccl_available for NCCL."""
    if not isinstance(site.node.func, ast.Attribute) or not site.editable:
        site.manual(
            "ask is_backend_available(accelerator.backend())", zh="请改用 is_backend_available(accelerator.backend())"
        )
        return
    site.edit.node(site.node, f"{site.text(site.node.func.value)}.is_backend_available({helper(site)}.backend())")
    say(site, site.node)


@rule.reference("torch.distributed.ProcessGroupNCCL.*", "torch.distributed.ProcessGroupNCCL")
@rule.call("torch.distributed.ProcessGroupNCCL.*", "torch.distributed.ProcessGroupNCCL")
def group_class(site: Site) -> None:
    site.manual(
        "ProcessGroupNCCL is CUDA's alone, and a build of torch without CUDA has none: let it stand under "
        '`if accelerator.name() == "cuda":`',
        zh='ProcessGroupNCCL 仅 CUDA 可用,不带 CUDA 的 torch 没有该类:请置于 if accelerator.name() == "cuda": 之下',
        risk="high",
    )


@rule.node(ast.Compare, words=("nccl", "NCCL"))
def comparison(site: Site) -> None:
    if len(site.node.ops) != 1 or not isinstance(site.node.ops[0], ast.Eq | ast.NotEq) or not site.editable:
        return
    left, right = site.node.left, site.node.comparators[0]
    text, other = (left, right) if names_nccl(site, left) else (right, left)
    if not names_nccl(site, text) or not is_backend(site, other):
        return
    negated = "not " if isinstance(site.node.ops[0], ast.NotEq) else ""
    site.edit.node(site.node, f"{site.text(other)} {negated}in {helper(site)}.BACKENDS")
    site.changed("the branch for NCCL is the one for any card", zh="针对 NCCL 的分支改为针对任意加速卡")


def names_nccl(site: Site, node: ast.expr) -> bool:
    return is_text(node, "nccl") or (site.qualified(node) or "").endswith("Backend.NCCL")
