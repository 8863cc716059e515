"""Report captured CUDA graphs.

For the MLU `cuda_api` replaces the names: CUDAGraph becomes MLUGraph, `torch.cuda.graph` becomes `torch.mlu.graph`. For
the NPU they stay and need manual review, since only new releases of torch_npu have `torch.npu.NPUGraph` and
`torch.npu.graph`. The operations that may be captured differ from card to card.
"""

from __future__ import annotations

from viaduct.cards import MLU
from viaduct.migration.rule import Rule, Site

rule = Rule(
    __name__,
    requirement="device_calls",
    rows=("P6", "6"),
    category="report",
    targets=("npu", "mlu"),
    after=("cuda_api",),
    runs_last=True,
)

SHARED_NAMES = ("graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables")
CUDA_GRAPH_NAMES = tuple(f"torch.cuda.{name}" for name in (*SHARED_NAMES, "CUDAGraph", "graphs.*"))
MLU_CAPTURES = tuple(f"{MLU.torch_module}.{name}" for name in (MLU.graph_class, "graph", "make_graphed_callables"))


@rule.use(*CUDA_GRAPH_NAMES)
def report_cuda_graph(site: Site) -> None:
    """Report names that stay: all on the NPU, and those that the MLU lacks."""
    card = site.target.card
    name = site.name.rpartition(".")[2].replace("CUDAGraph", card.graph_class)  # NPUGraph or MLUGraph
    site.request_review(
        f"{site.name} is for CUDA graphs; the nearest is {card.torch_module}.{name}, in new {card.plugin} releases",
        zh=f"{site.name} 用于 CUDA 图;最接近的是 {card.torch_module}.{name},仅新版 {card.plugin} 提供",
        risk="high",
    )


@rule.call(*MLU_CAPTURES)
def advise_comparison(site: Site) -> None:
    if site.options.to == "mlu":
        site.advise(
            "operations that may be captured differ from card to card: compare a step with and without the capture",
            zh="不同设备可捕获的操作不同:请对比捕获与不捕获的单步结果",
        )
