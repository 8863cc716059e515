"""Replace nccl by the card's backend in comparisons.

     import torch.distributed as dist
    -if dist.get_backend() == "nccl":
    +if dist.get_backend() == "hccl":
         dist.barrier()

Without this the branch for nccl would never be taken. The rule edits comparisons of a backend: an expression with
"backend" in it, or a variable that holds one. Others are reported. With `--to any` only `==` and `!=` are edited, and
with `--mode patch` every comparison needs manual review.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import elements
from viaduct.migration.predicates import is_literal_in
from viaduct.migration.rule import ALL_MODES, ALL_TARGETS, Rule, Site
from viaduct.migration.rules.torch._collectives import is_backend_expression, is_nccl, replace_backend
from viaduct.migration.targets import import_helper

rule = Rule(
    __name__,
    target_needs="backend",
    spec_rows=("P13",),
    targets=ALL_TARGETS,
    modes=ALL_MODES,
    former_names=("any_backend",),
)


@rule.node(ast.Compare, only_if_file_contains=("nccl", "NCCL"))
def change_comparison(site: Site) -> None:
    """Change or report a comparison with "nccl", or with a collection that contains it."""
    sides = [site.node.left, *site.node.comparators]
    if any(ast.unparse(side) == "os.environ" for side in sides):  # `"nccl" in os.environ` names a variable
        return
    texts = [text for side in sides for text in elements(side) if is_nccl(text)]
    if site.target.is_any_card:
        constants = [side for side in sides if is_nccl_constant(site, side)]
        if (texts or constants) and not compare_with_any_backend(site):
            report_comparison(site)
    elif texts:
        change_or_report(site, texts, any(is_backend_expression(site, side) for side in sides))


@rule.node(ast.MatchValue, only_if_file_contains=("nccl", "NCCL"))
def change_case(site: Site) -> None:
    """Change or report `case "nccl":`."""
    if is_nccl(site.node.value):
        statement = next(parent for parent in site.source.ancestors(site.node) if isinstance(parent, ast.Match))
        change_or_report(site, [site.node.value], is_backend_expression(site, statement.subject))


@rule.method("startswith")
def change_startswith(site: Site) -> None:
    """Change or report `backend.startswith("nccl")`."""
    texts = [text for text in site.node.args[:1] if is_nccl(text)]
    if texts:
        change_or_report(site, texts, is_backend_expression(site, site.node.func.value))


def compare_with_any_backend(site: Site) -> bool:
    """Turn `backend == "nccl"` into a test for the backend of any card; return False for other comparisons."""
    if len(site.node.ops) != 1 or not isinstance(site.node.ops[0], ast.Eq | ast.NotEq) or not site.is_editable:
        return False
    left, right = site.node.left, site.node.comparators[0]
    nccl, other = (left, right) if is_nccl_itself(site, left) else (right, left)
    if not is_nccl_itself(site, nccl) or not is_backend_expression(site, other):
        return False
    negated = "not " if isinstance(site.node.ops[0], ast.NotEq) else ""
    site.edit.replace_node(site.node, f"{site.text_of(other)} {negated}in {import_helper(site)}.BACKENDS")
    site.report_change("the branch for NCCL is now taken for any card", zh="针对 NCCL 的分支改为针对任意加速卡")
    return True


def is_nccl_itself(site: Site, node: ast.expr) -> bool:
    """Return True for the string "nccl" and torch's constant, not for "NCCL" or "cuda:nccl"."""
    return is_literal_in(node, "nccl") or is_nccl_constant(site, node)


def is_nccl_constant(site: Site, node: ast.expr) -> bool:
    return (site.qualified_name(node) or "").endswith("Backend.NCCL")


def change_or_report(site: Site, texts: list[ast.expr], is_backend: bool) -> None:
    """Replace NCCL in strings that are compared with a backend; report other comparisons, with `--to any` all."""
    if is_backend and not site.target.is_any_card:
        replace_texts(site, texts)
    else:
        report_comparison(site)


def report_comparison(site: Site) -> None:
    new = "accelerator.BACKENDS" if site.target.is_any_card else site.target.card.backend
    site.request_review(
        f"if this checks the collective backend, it must compare with {new}", zh=f"若此处判断的是通信后端,须改为 {new}"
    )


def replace_texts(site: Site, texts: list[ast.expr]) -> None:
    """Replace NCCL in strings by the card's backend; with `--mode patch` report the comparison."""
    if site.options.mode == "patch":
        new = site.target.card.backend
        site.request_review(
            f"the patch turns the backend into {new}, but cannot change a comparison: write {new} here",
            zh=f"补丁会把后端换成 {new},但无法修改比较:请将此处改为 {new}",
            risk="high",
        )
        return
    for text in texts:
        replace_backend(site, text)
