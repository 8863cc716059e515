"""Report settings of torch.backends.cuda that have no counterpart.

Choices of linear algebra libraries, plan caches and attention kernels are made for NVIDIA's cards. They are left as
written: some do nothing elsewhere, others answer for CUDA alone, such as `torch.backends.cuda.is_built()` and
`torch.version.cuda`, on which branches of a script often depend.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.targets import cards

rule = Rule(__name__, spec="P6 P19 6", kind="report", targets=("npu", "mlu", "any"), patch=True, last=True)

HOME = "torch.backends.cuda."
ASKS = {"torch.version.cuda": "None", "torch.backends.cuda.is_built": "False", "torch.has_cuda": "False"}
ELSEWHERE = ("torch.backends.cuda.matmul.allow_tf32",)  # the rule tf32


@rule.call(*ASKS)
@rule.reference(*ASKS)
def report_question(site: Site) -> None:
    titles = " or ".join(target.title for target in cards(site.options))
    site.manual(
        f"{site.name} is {ASKS[site.name]} on the {titles}: check which branch is then taken",
        zh=f"{site.name} 在 {titles.replace(' or ', '、')} 上为 {ASKS[site.name]}:请检查随后执行的分支",
        risk="low",
    )


@rule.node(ast.Attribute, words=("backends.cuda", "backends import cuda"))
def advise_setting(site: Site) -> None:
    name = site.qualified(site.node) or ""
    inner = isinstance(site.source.parents.get(site.node), ast.Attribute)
    if not name.startswith(HOME) or inner or name in (*ASKS, *ELSEWHERE):
        return
    titles = " or ".join(target.title for target in cards(site.options))
    site.advice(
        f"{name} configures NVIDIA's libraries: no counterpart is known on the {titles}",
        zh=f"{name} 针对 NVIDIA 的库:在 {titles.replace(' or ', '、')} 上没有已知的对应设置",
    )
