"""Pass no device to DistributedDataParallel on a machine without a card, and advise faster settings.

With `--to any`:

     import torch
     from torch.nn.parallel import DistributedDataParallel as DDP
    +from accelerator_device import accelerator
    -model = DDP(model, device_ids=[rank])
    +model = DDP(model, device_ids=accelerator.unless_cpu([rank]))

On the CPU device_ids and output_device must be None. A call that runs only if there is a card, as under `if
torch.cuda.is_available():`, stays.

With `--to npu` or `--to mlu` device_ids stays, and the rule advises two settings. `broadcast_buffers=False` saves a
broadcast of the batch norm statistics before every step (525 migrated scripts of Ascend's model zoo have it). Each rank
then keeps its own statistics, and a checkpoint has the statistics of rank 0. On the NPU Ascend advises
`bucket_cap_mb=500`.
"""

from __future__ import annotations

from viaduct.cards import NPU
from viaduct.migration.predicates import is_none
from viaduct.migration.rule import ALL_MODES, ALL_TARGETS, Rule, Site
from viaduct.migration.rules.torch._helper import runs_only_with_card
from viaduct.migration.rules.torch._wrapped_models import DISTRIBUTED_DATA_PARALLEL
from viaduct.migration.targets import import_helper

# After data_parallel_ddp, which writes calls of DistributedDataParallel.
rule = Rule(
    __name__,
    target_needs="device_strings",
    spec_rows=("P15",),
    category="advice",
    targets=ALL_TARGETS,
    category_for_any="mandatory",
    modes=ALL_MODES,
    former_names=("any_ddp", "ddp_advice"),
    after=("data_parallel_ddp",),
)


@rule.call(*DISTRIBUTED_DATA_PARALLEL)
def edit_or_advise(site: Site) -> None:
    if site.target.is_any_card:
        wrap_device_arguments(site)
    elif not site.has_unpacked_arguments:
        advise_settings(site)


def wrap_device_arguments(site: Site) -> None:
    """Wrap device arguments so that they are None on the CPU."""
    if runs_only_with_card(site, site.node) or not site.is_editable:
        return
    for name, position in (("device_ids", 1), ("output_device", 2)):
        value = site.argument(name, position)
        if value is not None and not is_none(value) and "unless_cpu" not in site.text_of(value):
            site.edit.replace_node(value, f"{import_helper(site)}.unless_cpu({site.text_of(value)})")
            site.report_change(f"{name} is None if there is no card", zh=f"没有加速卡时 {name} 为 None", node=value)


def advise_settings(site: Site) -> None:
    """Advise settings that save time on the card."""
    if site.keyword("broadcast_buffers") is None:
        site.advise(
            "broadcast_buffers=False saves a broadcast of the batch norm statistics in every step",
            zh="broadcast_buffers=False 可省去每步广播 BN 统计量的开销",
        )
    if site.target.card is NPU and site.keyword("bucket_cap_mb") is None:
        site.advise(
            "larger gradient buckets suit HCCL: the vendor advises bucket_cap_mb=500",
            zh="HCCL 适合更大的梯度桶:厂商建议 bucket_cap_mb=500",
        )
