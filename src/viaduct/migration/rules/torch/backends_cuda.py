"""Report settings of torch.backends.cuda without a counterpart, and values that depend on a build for CUDA.

Settings of linear algebra libraries, plan caches and attention kernels have no effect on other cards. Values such as
`torch.backends.cuda.is_built()` and `torch.version.cuda` often decide on branches of a script.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Site, make_rule_on_migrated_code

rule = make_rule_on_migrated_code(__name__, target_needs="device_calls", spec_rows=("P6", "P19", "6"))

SETTINGS_PREFIX = "torch.backends.cuda."
VALUES_WITHOUT_CUDA = {
    **dict.fromkeys(
        ("torch.version.cuda", "torch.backends.cudnn.version", "torch.utils.cpp_extension.CUDA_HOME"), "None"
    ),
    **dict.fromkeys(("torch.backends.cuda.is_built", "torch.backends.cudnn.is_available", "torch.has_cuda"), "False"),
}
EDITED_BY_TF32 = ("torch.backends.cuda.matmul.allow_tf32",)


@rule.use(*VALUES_WITHOUT_CUDA)
def report_value(site: Site) -> None:
    titles = " or ".join(card.title for card in site.cards)
    site.request_review(
        f"{site.name} is {VALUES_WITHOUT_CUDA[site.name]} on the {titles}: check which branch is then taken",
        zh=f"{site.name} 在 {titles.replace(' or ', '、')} 上为 {VALUES_WITHOUT_CUDA[site.name]}:请检查随后执行的分支",
        risk="low",
    )


@rule.node(ast.Attribute, only_if_file_contains=("backends.cuda", "backends import cuda"))
def advise_setting(site: Site) -> None:
    name = site.qualified_name(site.node) or ""
    is_part_of_longer_name = isinstance(site.source.parents.get(site.node), ast.Attribute)
    if (
        not name.startswith(SETTINGS_PREFIX)
        or is_part_of_longer_name
        or name in (*VALUES_WITHOUT_CUDA, *EDITED_BY_TF32)
    ):
        return
    titles = " or ".join(card.title for card in site.cards)
    site.advise(
        f"{name} configures NVIDIA's libraries: no counterpart is known on the {titles}",
        zh=f"{name} 针对 NVIDIA 的库:在 {titles.replace(' or ', '、')} 上没有已知的对应设置",
    )
