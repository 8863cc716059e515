"""Save and restore the card's random state instead of CUDA's.

     import torch
     import torch_npu
    -with torch.random.fork_rng():
    +with torch.random.fork_rng(device_type="npu"):
         x = torch.rand(3)

Without device_type torch.random.fork_rng saves the states of CUDA's generators. The card cannot restore CUDA's states
from a checkpoint, so calls that set a state get advice. With `--to any` fork_rng also only gets advice.
"""

from __future__ import annotations

from viaduct.migration.rule import ALL_TARGETS, Rule, Site
from viaduct.migration.rules.torch._collectives import has_unpacked_key

rule = Rule(
    __name__,
    target_needs="device_calls",
    spec_rows=("P2",),
    targets=ALL_TARGETS,
    category_for_any="advice",
    former_names=("any_rng_state",),
)

SETTERS = tuple(
    f"torch.{module}{name}"
    for module in ("cuda.", "npu.", "mlu.", "cuda.random.")
    for name in ("set_rng_state", "set_rng_state_all")
)


@rule.call("torch.random.fork_rng")
def set_device_type(site: Site) -> None:
    """Pass the card's device type to fork_rng, or advise it with `--to any`."""
    if site.argument("device_type", 4) is not None or has_unpacked_key(site, "device_type"):
        return
    if site.target.is_any_card:
        site.advise(
            "fork_rng saves CUDA's generators only: for another card pass device_type=accelerator.name()",
            zh="fork_rng 默认只保存 CUDA 的随机数状态:使用其他加速卡时请传入 device_type=accelerator.name()",
        )
        return
    device = site.target.card.device
    if site.has_unpacked_arguments or not site.is_editable:
        site.request_review(
            f"fork_rng saves CUDA's generators by default: make sure that device_type is {device}",
            zh=f"fork_rng 默认保存 CUDA 的随机数状态:请确认 device_type 为 {device}",
        )
        return
    site.set_argument("device_type", f'"{device}"')
    site.report_change(f"the random states of {device} are saved and restored", zh=f"保存并恢复 {device} 的随机数状态")


@rule.call(*SETTERS)
def advise_state(site: Site) -> None:
    for_card = (
        "the {card.title} cannot restore a generator's state from a CUDA checkpoint: make sure that this sets only "
        "states that were saved on the {card.title}",
        "CUDA 检查点中的随机数状态不适用于 {card.title}:请确认此处只恢复在 {card.title} 上保存的状态",
    )
    for_any = (
        "a generator's state can only be restored on the kind of card that saved it: make sure that this does so",
        "随机数状态只适用于保存它的那类加速卡:请确认此处不会恢复其他卡的状态",
    )
    site.advise(*site.target.select_message(for_card, for_any))
