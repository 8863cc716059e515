"""Compare with the accelerator's backend where the script compares with nccl.

     import torch.distributed as dist
    -if dist.get_backend() == "nccl":
    +if dist.get_backend() == "hccl":
         dist.barrier()

A branch that asks for nccl is the branch for the accelerator; unchanged, it would silently never be taken. What is
compared must be a backend: what torch.distributed says, or something that is called one. The vendors' run-time patches
cannot see such a comparison, so with `--mode patch` it needs manual review.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch import _collectives as collectives
from viaduct.migration.rules.torch._targets import card

rule = Rule(__name__, spec="P13", kind="mandatory", targets=("npu", "mlu"), order=61, patch=True)


@rule.node(ast.Compare, words=("nccl", "NCCL"))
def comparison(site: Site) -> None:
    sides = [site.node.left, *site.node.comparators]
    texts = [text for side in sides for text in strings(side)]
    if not texts or any(is_environment(side) for side in sides):
        return
    if any(is_backend(site, side) for side in sides):
        change(site, texts)
    else:
        ask(site)


@rule.node(ast.MatchValue, words=("nccl", "NCCL"))
def case(site: Site) -> None:
    statement = next(one for one in site.source.ancestors(site.node) if isinstance(one, ast.Match))
    if collectives.is_nccl(site.node.value) and is_backend(site, statement.subject):
        change(site, [site.node.value])


@rule.method("startswith")
def beginning(site: Site) -> None:
    texts = [one for one in site.node.args[:1] if collectives.is_nccl(one)]
    if texts and is_backend(site, site.node.func.value):
        change(site, texts)


def strings(side: ast.expr) -> list[ast.Constant]:
    """`"nccl"`, or those among several: `in ("nccl", "gloo")`."""
    held = side.elts if isinstance(side, ast.Tuple | ast.List | ast.Set) else [side]
    return [one for one in held if isinstance(one, ast.Constant) and collectives.is_nccl(one)]


def is_environment(side: ast.expr) -> bool:
    """`"nccl" in os.environ` asks for a variable of that name."""
    return ast.unparse(side) == "os.environ"


def is_backend(site: Site, side: ast.expr) -> bool:
    """What torch.distributed says, what is called a backend, or a name that gets such a thing."""
    if "backend" in ast.unparse(side).lower():
        return True
    made = site.values.origin(side)
    return made is not side and isinstance(made, ast.expr) and "backend" in ast.unparse(made).lower()


def change(site: Site, texts: list[ast.Constant]) -> None:
    if site.options.mode == "patch":
        new = card(site.options).backend
        site.manual(
            f"the patch makes the backend {new}, and cannot change a comparison: write {new} here",
            zh=f"补丁会把后端换成 {new},但无法修改比较:请将此处改为 {new}",
            risk="high",
        )
        return
    for text in texts:
        if collectives.swap(site, text):
            collectives.say_swapped(site, text)


def ask(site: Site) -> None:
    new = card(site.options).backend
    site.manual(
        f"if this asks for the collective backend, it must ask for {new}",
        zh=f"若此处判断的是通信后端,须改为 {new}",
    )
