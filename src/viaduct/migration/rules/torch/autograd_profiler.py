"""Profile the card instead of CUDA with torch.autograd.profiler.

With `--to mlu`:

     import torch
    +import torch_mlu
    -with torch.autograd.profiler.emit_nvtx():
    +with torch.autograd.profiler.emit_cnpx():
         pass

torch_mlu has emit_cnpx in torch_mlu.profiler and adds it to torch.autograd.profiler; `use_device="mlu"` replaces
`use_cuda`. On the NPU this profiler records the CPU only, and emit_nvtx has no counterpart: both need manual review.
"""

from __future__ import annotations

import ast

from viaduct.cards import MLU, NPU
from viaduct.migration.rule import ALL_CARDS, Rule, Site
from viaduct.migration.rules.torch._dotted_names import replace_qualified_name, report_uneditable
from viaduct.migration.rules.torch._imports import move_names

rule = Rule(__name__, target_needs="profiling", spec_rows=("P10", "6"), targets=ALL_CARDS)

PROFILER = "torch.autograd.profiler"
EMIT_NVTX = f"{PROFILER}.emit_nvtx"
EMIT_CNPX = f"emit_{MLU.range_module}"  # emit_cnpx


@rule.node(ast.ImportFrom, only_if_file_contains=("emit_nvtx",))
def move_imports(site: Site) -> None:
    """On the MLU import emit_cnpx instead of emit_nvtx."""
    if site.options.to == "mlu" and site.node.module == PROFILER:
        move_names(site, lambda name: f"{MLU.plugin}.profiler.{EMIT_CNPX}" if name == EMIT_NVTX else None)


@rule.use(EMIT_NVTX)
def replace_nvtx(site: Site) -> None:
    """Replace emit_nvtx on the MLU, report it on the NPU."""
    if site.options.to == "npu":
        report_for_npu(site, "emit_nvtx", site.node)
        return
    new = f"{PROFILER}.{EMIT_CNPX}"
    is_replaced = replace_qualified_name(site, site.name_node, site.name, new)
    if is_replaced:
        site.target.require_plugin(site)
        site.report_change(f"emit_nvtx becomes {EMIT_CNPX}", zh=f"emit_nvtx 替换为 {EMIT_CNPX}")
    elif is_replaced is False:  # None: the import of the name is edited instead
        report_uneditable(site, site.name, new)


@rule.call(f"{PROFILER}.profile")
def replace_use_cuda(site: Site) -> None:
    """Replace use_cuda=True on the MLU, report it on the NPU."""
    keyword = site.keyword("use_cuda")
    if keyword is None or (isinstance(keyword.value, ast.Constant) and not keyword.value.value):
        return
    if site.options.to == "npu":
        report_for_npu(site, "use_cuda", keyword.value)
    elif isinstance(keyword.value, ast.Constant) and site.is_editable:
        site.edit.replace_node(keyword, f'use_device="{site.target.card.device}"')
        site.report_change("the profiler's device is the MLU", zh="性能分析设备改为 MLU")
    else:
        site.request_review(
            'use_cuda is decided at run time: write use_device="mlu" if it is true',
            zh='use_cuda 在运行时决定:为真时请改为 use_device="mlu"',
            node=keyword.value,
        )


def report_for_npu(site: Site, name: str, node: ast.AST) -> None:
    site.request_review(
        f"{name}: this profiler does not see the NPU; use {NPU.plugin}.profiler.profile",
        zh=f"{name}:该性能分析器看不到 NPU,请使用 {NPU.plugin}.profiler.profile",
        node=node,
    )
