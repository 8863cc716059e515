"""Replace nccl by the accelerator's backend in comparisons.

     import torch.distributed as dist
    -if dist.get_backend() == "nccl":
    +if dist.get_backend() == "hccl":
         dist.barrier()

Without this the branch for nccl would never be taken. The rule edits comparisons of a backend: an expression with
"backend" in it, or a variable that holds one. Others are reported. With `--mode patch` the comparison needs manual
review.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import elements
from viaduct.migration.predicates import is_literal_in
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._collectives import is_backend_expression, is_nccl, replace_backend
from viaduct.migration.targets import card, helper

rule = Rule(__name__, targets=("npu", "mlu", "any"), in_patch_mode=True, former_names=("any_backend",))


@rule.node(ast.Compare, only_files_with=("nccl", "NCCL"))
def change_comparison(site: Site) -> None:
    """Change or report a comparison with "nccl", or with a collection that contains it."""
    if site.target.is_any:
        compare_with_any_backend(site)
        return
    sides = [site.node.left, *site.node.comparators]
    texts = [text for side in sides for text in elements(side) if is_nccl(text)]
    if not texts or any(ast.unparse(side) == "os.environ" for side in sides):  # `"nccl" in os.environ` names a variable
        return
    if any(is_backend_expression(site, side) for side in sides):
        replace_texts(site, texts)
        return
    new = card(site.options).backend
    site.request_review(
        f"if this checks the collective backend, it must compare with {new}",
        zh=f"若此处判断的是通信后端,须改为 {new}",
    )


@rule.node(ast.MatchValue, only_files_with=("nccl", "NCCL"))
def change_case(site: Site) -> None:
    """Change `case "nccl":` of a match over a backend."""
    if site.target.is_any:
        return
    statement = next(parent for parent in site.source.ancestors(site.node) if isinstance(parent, ast.Match))
    if is_nccl(site.node.value) and is_backend_expression(site, statement.subject):
        replace_texts(site, [site.node.value])


@rule.method("startswith")
def change_startswith(site: Site) -> None:
    """Change `backend.startswith("nccl")`."""
    texts = [text for text in site.node.args[:1] if is_nccl(text)]
    if texts and not site.target.is_any and is_backend_expression(site, site.node.func.value):
        replace_texts(site, texts)


def compare_with_any_backend(site: Site) -> None:
    """Turn a comparison with NCCL into a test for the backend of any card."""
    if len(site.node.ops) != 1 or not isinstance(site.node.ops[0], ast.Eq | ast.NotEq) or not site.is_editable:
        return
    left, right = site.node.left, site.node.comparators[0]
    text, other = (left, right) if names_nccl(site, left) else (right, left)
    if not names_nccl(site, text) or not is_backend_expression(site, other):
        return
    negated = "not " if isinstance(site.node.ops[0], ast.NotEq) else ""
    site.edit.replace_node(site.node, f"{site.text(other)} {negated}in {helper(site)}.BACKENDS")
    site.report_change("the branch for NCCL is now taken for any card", zh="针对 NCCL 的分支改为针对任意加速卡")


def names_nccl(site: Site, node: ast.expr) -> bool:
    """Return True for the string nccl and for torch's constant."""
    return is_literal_in(node, "nccl") or (site.qualified_name(node) or "").endswith("Backend.NCCL")


def replace_texts(site: Site, texts: list[ast.expr]) -> None:
    """Replace NCCL in strings by the card's backend; with `--mode patch` report the comparison."""
    if site.options.mode == "patch":
        new = card(site.options).backend
        site.request_review(
            f"the patch turns the backend into {new}, but cannot change a comparison: write {new} here",
            zh=f"补丁会把后端换成 {new},但无法修改比较:请将此处改为 {new}",
            risk="high",
        )
        return
    for text in texts:
        replace_backend(site, text)
