"""Report uses of NVIDIA's apex: Ascend has an apex of its own, Cambricon has none.

On the NPU `from apex import amp` stays, since Ascend ships an apex of its own; `combine_grad=True` in amp.initialize
and its NpuFused optimizers make it faster, and DistributedDataParallel must come after initialize. apex's CUDA kernels
(FusedAdam, FusedLayerNorm, contrib) are not in it. On the MLU there is no apex: torch.mlu.amp does mixed precision. For
DistributedDataParallel and SyncBatchNorm use those of PyTorch itself.
"""

from __future__ import annotations

import ast

from viaduct.cards import NPU
from viaduct.cards.advice import APEX
from viaduct.migration.lookups import calls_to, imported_names
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._wrapped import DISTRIBUTED_DATA_PARALLEL

rule = Rule(__name__, category="report", targets=("npu", "mlu", "any"), in_patch_mode=True, runs_last=True)

IN_TORCH = {
    "apex.parallel.DistributedDataParallel": "torch.nn.parallel.DistributedDataParallel",
    "apex.parallel.SyncBatchNorm": "torch.nn.SyncBatchNorm",
    "apex.parallel.convert_syncbn_model": "torch.nn.SyncBatchNorm.convert_sync_batchnorm",
}
FUSED_OPTIMIZERS = ("Adam", "AdamW", "SGD", "RMSprop", "Adadelta", "Lamb")
NPU_FUSED = f"{NPU.module}.optim.NpuFused"


@rule.node(ast.Import, ast.ImportFrom, only_files_with=("apex",))
def report_import(site: Site) -> None:
    """Report an import of apex on the cards, unless a module of the project has that name."""
    names = imported_names(site.node)
    if not any(name == "apex" or name.startswith("apex.") for name in names) or "apex" in site.work.project.own_names:
        return
    english, chinese = APEX[site.options.to]
    if site.options.to != "npu":
        site.request_review(english, zh=chinese, risk="high")
    elif any(f"{name}.".startswith("apex.amp.") for name in names) or "apex" in names:
        site.advise(english, zh=chinese)


@rule.call("apex.amp.initialize")
def check_initialize(site: Site) -> None:
    """Advise combine_grad=True, and report a DistributedDataParallel that comes before the call."""
    if site.options.to != "npu":
        return
    if site.keyword("combine_grad") is None and not site.has_unpacked_arguments:
        site.advise(
            "combine_grad=True keeps the gradients in contiguous memory, which makes unscaling and updates faster",
            zh="combine_grad=True 将梯度合并为连续内存,加快反缩放与更新",
        )
    function = site.source.function(site.node)
    for call in calls_to(site, DISTRIBUTED_DATA_PARALLEL):
        if site.source.function(call) is function and call.lineno < site.node.lineno:
            site.request_review(
                "DistributedDataParallel must come after amp.initialize",
                zh="DistributedDataParallel 必须在 amp.initialize 之后",
                risk="high",
                node=call,
            )


@rule.call(*(f"torch.optim.{name}" for name in FUSED_OPTIMIZERS))
def advise_optimizer(site: Site) -> None:
    """Advise the fused optimizer in a file that calls amp.initialize, for which it is made."""
    if site.options.to == "npu" and "apex.amp.initialize" in site.work.index.calls:
        last = site.name.rpartition(".")[2]
        site.advise(
            f"{NPU_FUSED}{last} updates all parameters at once",
            zh=f"{NPU_FUSED}{last} 可一次更新全部参数",
        )


@rule.call("apex.*")
@rule.reference("apex.*")
def report_use(site: Site) -> None:
    """Report what PyTorch has itself, and on the NPU the CUDA kernels, with their counterpart if there is one."""
    in_torch = IN_TORCH.get(site.name)
    if in_torch is not None:
        site.advise(f"PyTorch has this itself: {in_torch}", zh=f"PyTorch 自带:{in_torch}")
    elif site.options.to == "npu" and not site.name.startswith(("apex.amp", "apex.optimizers.NpuFused")):
        fused = site.name.removeprefix("apex.optimizers.Fused")
        known = (
            f": {NPU_FUSED}{fused.title() if fused == 'LAMB' else fused}"
            if fused in (*FUSED_OPTIMIZERS, "LAMB")
            else ""
        )
        site.request_review(
            f"{site.name} is a CUDA kernel{known or ': use the operator or optimizer of PyTorch'}",
            zh=f"{site.name} 是 CUDA 核函数{known or ':请使用 PyTorch 自带的算子或优化器'}",
            risk="high",
        )
