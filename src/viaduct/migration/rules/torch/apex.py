"""Report uses of NVIDIA's apex: Ascend has its own apex, Cambricon has none.

On the NPU `from apex import amp` stays. `combine_grad=True` in amp.initialize and the NpuFused optimizers make it
faster, and DistributedDataParallel must come after initialize. Ascend's apex has no CUDA kernels (FusedAdam,
FusedLayerNorm, contrib). On the MLU use torch.mlu.amp for mixed precision. PyTorch has its own DistributedDataParallel
and SyncBatchNorm.
"""

from __future__ import annotations

import ast

from viaduct.cards import NPU
from viaduct.cards.advice import APEX
from viaduct.migration.lookups import calls_to, imported_names
from viaduct.migration.rule import Site, make_rule_on_migrated_code
from viaduct.migration.rules.torch._wrapped_models import DISTRIBUTED_DATA_PARALLEL

rule = make_rule_on_migrated_code(__name__, target_needs="amp", spec_rows=("P12", "6"))

COUNTERPARTS_IN_TORCH = {
    "apex.parallel.DistributedDataParallel": "torch.nn.parallel.DistributedDataParallel",
    "apex.parallel.SyncBatchNorm": "torch.nn.SyncBatchNorm",
    "apex.parallel.convert_syncbn_model": "torch.nn.SyncBatchNorm.convert_sync_batchnorm",
}
# Optimizers with a counterpart in torch_npu, such as NpuFusedAdam.
FUSED_OPTIMIZERS = ("Adam", "AdamW", "SGD", "RMSprop", "Adadelta", "Lamb")
NPU_FUSED = f"{NPU.plugin}.optim.NpuFused"


@rule.node(ast.Import, ast.ImportFrom, only_if_file_contains=("apex",))
def report_import(site: Site) -> None:
    """Report an import of apex; on the NPU only advise, and only on an import of apex itself or of apex.amp.

    A module of the project called apex is not reported.
    """
    names = imported_names(site.node)
    if (
        not any(name == "apex" or name.startswith("apex.") for name in names)
        or "apex" in site.file.project.own_module_names
    ):
        return
    english, chinese = APEX[site.options.to]
    if site.options.to != "npu":
        site.request_review(english, zh=chinese, risk="high")
    elif any(f"{name}.".startswith("apex.amp.") for name in names) or "apex" in names:
        site.advise(english, zh=chinese)


@rule.call("apex.amp.initialize")
def check_initialize(site: Site) -> None:
    """On the NPU advise combine_grad=True, and report a DistributedDataParallel that comes before the call."""
    if site.options.to != "npu":
        return
    if site.keyword("combine_grad") is None and not site.has_unpacked_arguments:
        site.advise(
            "combine_grad=True keeps the gradients in contiguous memory, which makes unscaling and updates faster",
            zh="combine_grad=True 将梯度合并为连续内存,加快反缩放与更新",
        )
    function = site.source.function_around(site.node)
    for call in calls_to(site, DISTRIBUTED_DATA_PARALLEL):
        if site.source.function_around(call) is function and call.lineno < site.node.lineno:
            site.request_review(
                "DistributedDataParallel must come after amp.initialize",
                zh="DistributedDataParallel 必须在 amp.initialize 之后",
                risk="high",
                node=call,
            )


@rule.call(*(f"torch.optim.{name}" for name in FUSED_OPTIMIZERS))
def advise_optimizer(site: Site) -> None:
    """On the NPU advise the fused optimizer in a file that calls amp.initialize."""
    if site.options.to == "npu" and "apex.amp.initialize" in site.file.index.calls:
        optimizer = f"{NPU_FUSED}{site.name.rpartition('.')[2]}"
        site.advise(f"{optimizer} updates all parameters at once", zh=f"{optimizer} 可一次更新全部参数")


@rule.use("apex.*")
def report_use(site: Site) -> None:
    """Advise on names that PyTorch has too; on the NPU report others, which may need CUDA kernels."""
    in_torch = COUNTERPARTS_IN_TORCH.get(site.name)
    if in_torch is not None:
        site.advise(f"PyTorch has this itself: {in_torch}", zh=f"PyTorch 自带:{in_torch}")
    elif site.options.to == "npu" and not site.name.startswith(("apex.amp", "apex.optimizers.NpuFused")):
        fused = site.name.removeprefix("apex.optimizers.Fused")
        fused = "Lamb" if fused == "LAMB" else fused
        counterpart = f": {NPU_FUSED}{fused}" if fused in FUSED_OPTIMIZERS else ""
        site.request_review(
            f"{site.name} may need apex's CUDA kernels{counterpart or ': use the operator or optimizer of PyTorch'}",
            zh=f"{site.name} 可能依赖 apex 的 CUDA 核函数{counterpart or ':请使用 PyTorch 自带的算子或优化器'}",
            risk="high",
        )
