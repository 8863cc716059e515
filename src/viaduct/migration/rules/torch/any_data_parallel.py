"""Say of DataParallel that it is CUDA's.

nn.DataParallel stays as it is, so that a run on CUDA does what it did; torch_npu does not support it, and without a
card it hands the module through. DistributedDataParallel works on all of them.
"""

from __future__ import annotations

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._wrapped import PARTS

rule = Rule(__name__, spec="P14", kind="report", targets=("any",), order=70)


HOME = "torch.nn.parallel"
CALLS = ("torch.nn.DataParallel", f"{HOME}.DataParallel", f"{HOME}.data_parallel", f"{HOME}.data_parallel.DataParallel")


@rule.call(*CALLS, *PARTS)
def report(site: Site) -> None:
    name = site.name.rpartition(".")[2]
    site.manual(
        f"{name} runs on CUDA alone: with several NPUs or MLUs use DistributedDataParallel under torchrun; with one, "
        "leave it out",
        zh=f"{name} 仅支持 CUDA:多张 NPU 或 MLU 请在 torchrun 下使用 DistributedDataParallel;单卡请去掉",
        risk="medium",
    )
