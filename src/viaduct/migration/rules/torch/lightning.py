"""Report trainers of Lightning, which has no accelerator for the NPU or MLU.

    import pytorch_lightning as pl
    trainer = pl.Trainer(accelerator="gpu", devices=8, strategy="ddp")

Lightning chooses the device itself: `gpu` and `gpus=` mean CUDA, and `auto`, also by default, finds the CPU where there
is no CUDA, so that a script would silently train there. A trainer that names another accelerator (the CPU, a TPU, mps,
hpu, ipu) needs nothing, and neither does one whose accelerator has the card's device in its name.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.targets import cards

rule = Rule(__name__, category="report", targets=("npu", "mlu", "any"))

LIGHTNING_NAMES = ("pytorch_lightning.*", "lightning.*", "lightning_fabric.*")
TRAINERS = ("Trainer", "Fabric", "LightningCLI", "from_argparse_args", "LightningLite")
OTHER_ACCELERATORS = ("cpu", "tpu", "mps", "hpu", "ipu")


@rule.call(*LIGHTNING_NAMES)
def report_trainer(site: Site) -> None:
    """Report a Trainer whose accelerator must be chosen."""
    last = site.name.rpartition(".")[2]
    accelerator = site.argument("accelerator", 0 if last == "Fabric" else -1)
    if last not in TRAINERS or (accelerator is not None and is_right_accelerator(site, accelerator)):
        return
    names = " and ".join(card.title for card in cards(site.options))
    present = f"accelerator={site.text(accelerator)}" if accelerator is not None else "the accelerator that it finds"
    site.request_review(
        f"Lightning has no accelerator for the {names}, and {present} would be CUDA or the CPU: pass a subclass of "
        "lightning's Accelerator for the device, and a strategy whose process_group_backend is the card's",
        zh=f"Lightning 没有 {names} 的加速器,此处会选用 CUDA 或 CPU:请传入为该设备派生的 Accelerator,"
        "并在 strategy 中设置其 process_group_backend",
        risk="high",
    )


def is_right_accelerator(site: Site, accelerator: ast.expr) -> bool:
    """Return True for the name of the card or of another kind of device, and an expression that mentions the card."""
    devices = [card.device for card in cards(site.options)]
    if isinstance(accelerator, ast.Constant):
        return accelerator.value in (*OTHER_ACCELERATORS, *devices)
    text = site.text(site.values.origin(accelerator)).lower()
    return all(device in text for device in devices)
