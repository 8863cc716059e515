"""Report marks for NVIDIA's profiler.

For the MLU `cuda_api` renames `torch.cuda.nvtx` to `torch.mlu.cnpx`, whose functions have the same names. The nearest
on the NPU is `torch.npu.mstx`, which identifies ranges by a number instead of pushing and popping them.
"""

from __future__ import annotations

from viaduct.cards import MLU
from viaduct.cards.torch_api import NVTX_FUNCTIONS
from viaduct.migration.rule import ALL_CARDS, Rule, Site

rule = Rule(
    __name__, target_needs="device_calls", spec_rows=("P6", "6"), category="report", targets=ALL_CARDS, runs_last=True
)

MLU_MARKS = f"{MLU.torch_module}.{MLU.range_module}"  # torch.mlu.cnpx, after `cuda_api`
# Also `cuda.nvtx` where the import `from torch import cuda` was edited, so that `cuda` is the card's module.
NVTX_NAMES = ("torch.cuda.nvtx.*", "torch.npu.nvtx.*", "torch.mlu.nvtx.*", f"{MLU_MARKS}.*", "torch.cuda.nvtx")
# Function of NVTX -> the card's functions to use instead, in English and Chinese.
ALTERNATIVES = {
    "range_push": ("range_start returns a number for range_end", "range_start 返回供 range_end 使用的编号"),
    "range_pop": ("range_end takes the number that range_start returned", "range_end 接收 range_start 返回的编号"),
    "range": ("range_start before and range_end after", "之前调用 range_start,之后调用 range_end"),
}


@rule.use(*NVTX_NAMES)
def report_range(site: Site) -> None:
    card = site.target.card
    function = site.name.rpartition(".")[2]
    if site.name.startswith(MLU_MARKS) and function in NVTX_FUNCTIONS:
        return  # torch_mlu has it
    english, chinese = ALTERNATIVES.get(function, ("range_start, range_end, mark", "range_start、range_end、mark"))
    site.request_review(
        f"{site.name} marks ranges for NVIDIA's profiler; the nearest is {card.torch_module}.{card.range_module}: "
        f"{english}",
        zh=f"{site.name} 为 NVIDIA 性能工具打标记;最接近的是 {card.torch_module}.{card.range_module}:{chinese}",
    )
