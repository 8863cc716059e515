"""Say whose random numbers are kept.

torch.random.fork_rng keeps CUDA's generators unless it is told another type of device. On CUDA nothing changes;
elsewhere the card's numbers go on. And a state that was saved on one kind of card does not fit another.
"""

from __future__ import annotations

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch.rng_state import SETTERS

rule = Rule(__name__, spec="P2", kind="advice", targets=("any",), order=13)


@rule.call("torch.random.fork_rng")
def fork(site: Site) -> None:
    if site.keyword("device_type") is None and not site.unpacked:
        site.advice(
            "fork_rng keeps CUDA's generators alone: with another card give device_type=accelerator.name()",
            zh="fork_rng 默认只保存 CUDA 的随机数状态:使用其他加速卡时请传入 device_type=accelerator.name()",
        )


@rule.call(*SETTERS)
def restore(site: Site) -> None:
    site.advice(
        "a generator's state fits the kind of card on which it was saved: see that no other is set here",
        zh="随机数状态只适用于保存它的那类加速卡:请确认此处不会恢复其他卡的状态",
    )
