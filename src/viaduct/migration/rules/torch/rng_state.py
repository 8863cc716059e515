"""Keep the accelerator's random numbers where CUDA's were kept.

     import torch
     import torch_npu
    -with torch.random.fork_rng():
    +with torch.random.fork_rng(device_type="npu"):
         x = torch.rand(3)

torch.random.fork_rng saves CUDA's generators unless it is told the type of device. The states themselves are those of
one kind of device: a checkpoint that holds CUDA's cannot restore the accelerator's, so setting one is pointed out.
"""

from __future__ import annotations

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._targets import card

rule = Rule(__name__, spec="P2", kind="mandatory", targets=("npu", "mlu"), order=50)

SETTERS = tuple(
    f"torch.{module}{name}"
    for module in ("cuda.", "npu.", "mlu.", "cuda.random.")
    for name in ("set_rng_state", "set_rng_state_all")
)


@rule.call("torch.random.fork_rng")
def fork(site: Site) -> None:
    if len(site.node.args) > 4 or site.unpacked or site.keyword("device_type") is not None or not site.editable:
        return
    device = card(site.options).device
    site.set_argument("device_type", f'"{device}"')
    site.changed(f"the generators of {device} are kept", zh=f"保存并恢复 {device} 的随机数状态")


@rule.call(*SETTERS)
def restore(site: Site) -> None:
    title = card(site.options).title
    site.advice(
        f"a generator's state from a CUDA checkpoint does not fit the {title}: see that this sets only states "
        f"that were saved there",
        zh=f"CUDA 检查点中的随机数状态不适用于 {title}:请确认此处只恢复在 {title} 上保存的状态",
    )
