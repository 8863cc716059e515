"""Profile whatever card there is.

     import torch
     from torch.profiler import ProfilerActivity, profile
    +from accelerator_device import accelerator
    -with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):
    +with profile(activities=[ProfilerActivity.CPU, accelerator.activity()]):
         step()

torch.profiler has a word for CUDA's and, with torch_mlu, for the MLU's activity. torch_npu brings a profiler of its
own, so there torch's sees the host alone.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._any import helper

rule = Rule(__name__, spec="P10", kind="mandatory", targets=("any",), order=30)
EXAMPLE_OPTIONS = {"to": "any"}


@rule.reference("torch.profiler.ProfilerActivity.CUDA", "torch.autograd.ProfilerActivity.CUDA")
def activity(site: Site) -> None:
    parent = site.source.parents.get(site.node)
    if not site.editable or isinstance(parent, ast.Compare):
        return
    site.rename(f"{helper(site)}.activity()")
    site.changed("the activity is that of whatever card there is", zh="性能分析活动取决于现有的加速卡")


@rule.call("torch.autograd.profiler.profile")
def switch(site: Site) -> None:
    if site.keyword("use_cuda") is not None:
        site.manual(
            "use_cuda knows CUDA alone: write use_device=accelerator.name(), and None on the CPU",
            zh="use_cuda 仅支持 CUDA:请改为 use_device=accelerator.name(),CPU 上为 None",
        )
