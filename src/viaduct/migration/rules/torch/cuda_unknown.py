"""Report names of torch.cuda that are not known to exist on the card.

A name that is not in the sources of torch_npu or torch_mlu stays and needs manual review. For some names the finding
says what they are for, or what to use instead.
"""

from __future__ import annotations

from viaduct.cards import NPU
from viaduct.cards.torch_api import NAMES_MISSING_ON_A_CARD, NAMES_REPORTED_BY_OTHER_RULES, find_counterpart
from viaduct.migration.rule import ALL_CARDS, Rule, Site

rule = Rule(
    __name__,
    target_needs="device_calls",
    spec_rows=("P2", "P6", "6"),
    category="report",
    targets=ALL_CARDS,
    runs_last=True,
)

COLLECTIVES = ("collectives go through torch.distributed", "集合通信请使用 torch.distributed")
KERNELS = ("it compiles or tunes CUDA kernels", "它用于编译或调优 CUDA 内核")
HINTS = {  # first part of a name in torch.cuda -> its purpose or a replacement, in English and Chinese
    "nccl": COLLECTIVES,
    "comm": COLLECTIVES,
    "jiterator": KERNELS,
    "tunable": KERNELS,
    "cutlass": KERNELS,
    "get_arch_list": ("it lists CUDA architectures", "它列出的是 CUDA 架构"),
    "get_gencode_flags": ("it returns flags of NVIDIA's compiler", "它返回 NVIDIA 编译器选项"),
    "profiler": (
        f"it controls NVIDIA's profiler: use {NPU.plugin}.profiler",
        f"它控制 NVIDIA 性能工具:请使用 {NPU.plugin}.profiler",
    ),
    "cudart": ("it is CUDA's runtime", "它是 CUDA 运行时"),
    "list_gpu_processes": ("the card's monitoring command lists processes", "请使用该设备自带的监控命令"),
    "is_tf32_supported": ("TF32 is a format of NVIDIA's cards", "TF32 是 NVIDIA 的数据格式"),
}


@rule.use("torch.cuda.*")
def report_unknown(site: Site) -> None:
    """Report a name of torch.cuda that the card is not known to have."""
    name = site.name[len("torch.cuda.") :]
    if name == "OutOfMemoryError" and site.options.to == "npu":
        site.advise(
            "torch.cuda.OutOfMemoryError may stay: newer releases of torch_npu raise the same class "
            "(torch.OutOfMemoryError since torch 2.5), older ones a RuntimeError",
            zh="torch.cuda.OutOfMemoryError 可以保留:新版 torch_npu 抛出同一异常类(torch 2.5 起为 "
            "torch.OutOfMemoryError),旧版抛出 RuntimeError",
        )
        return
    is_reported = name.partition(".")[0] in NAMES_REPORTED_BY_OTHER_RULES
    if not is_reported and find_counterpart(name, site.target.card) is None:
        report_name(site, name)


@rule.use("torch.npu.*", "torch.mlu.*")
def report_missing_member(site: Site) -> None:
    """Report `cuda.nccl` where `cuda` is the card's module now: its import, `from torch import cuda`, was edited."""
    card = site.target.card
    name = site.name[len(card.torch_module) + 1 :]
    root_name = name.partition(".")[0]
    if (
        site.name.startswith(f"{card.torch_module}.")
        and root_name in NAMES_MISSING_ON_A_CARD - NAMES_REPORTED_BY_OTHER_RULES
        and find_counterpart(name, card) is None
    ):
        report_name(site, name)


def report_name(site: Site, name: str) -> None:
    card = site.target.card
    hint, hint_zh = HINTS.get(name.partition(".")[0], ("check whether it is needed", "请确认是否需要"))
    site.request_review(
        f"torch.cuda.{name} is not known to exist on the {card.title}: {hint}",
        zh=f"{card.title} 上未确认有 torch.cuda.{name} 的对应接口:{hint_zh}",
    )
