"""Say what makes DistributedDataParallel faster on the accelerator.

`broadcast_buffers=False` saves a broadcast of the batch norm statistics before every step (525 migrated scripts of the
vendor's model zoo have it); with it each rank keeps statistics of its own, and a checkpoint has those of rank 0. Larger
gradient buckets suit HCCL: the vendor advises `bucket_cap_mb=500`. `device_ids` stays as it is.
"""

from __future__ import annotations

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._targets import card

rule = Rule(__name__, spec="P15", kind="advice", targets=("npu", "mlu"), order=90, patch=True)

DISTRIBUTED = (
    "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.parallel.distributed.DistributedDataParallel",
)


@rule.call(*DISTRIBUTED)
def advise(site: Site) -> None:
    if site.unpacked:
        return
    if site.keyword("broadcast_buffers") is None:
        site.advice(
            "broadcast_buffers=False saves a broadcast of the batch norm statistics in every step",
            zh="broadcast_buffers=False 可省去每步广播 BN 统计量的开销",
        )
    if card(site.options).name == "npu" and site.keyword("bucket_cap_mb") is None:
        site.advice(
            "larger gradient buckets suit HCCL: the vendor advises bucket_cap_mb=500",
            zh="HCCL 适合更大的梯度桶:厂商建议 bucket_cap_mb=500",
        )
