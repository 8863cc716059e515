"""Report trainers of Lightning, which has no accelerator for the NPU or MLU.

    import pytorch_lightning as pl
    trainer = pl.Trainer(accelerator="gpu", devices=8, strategy="ddp")

Lightning chooses the device: `gpu` and `gpus=` mean CUDA, and the default `auto` would train on the CPU without CUDA.
Trainers with another accelerator (the CPU, a TPU, mps, hpu, ipu), or with the card's device in the accelerator's name,
are not reported.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import ALL_TARGETS, Rule, Site

rule = Rule(__name__, target_needs="trainers", spec_rows=("6",), category="report", targets=ALL_TARGETS)

LIGHTNING_NAMES = ("pytorch_lightning.*", "lightning.*", "lightning_fabric.*")
TRAINERS = ("Trainer", "Fabric", "LightningCLI", "from_argparse_args", "LightningLite")
OTHER_ACCELERATORS = ("cpu", "tpu", "mps", "hpu", "ipu")


@rule.call(*LIGHTNING_NAMES)
def report_trainer(site: Site) -> None:
    class_name = site.name.rpartition(".")[2]
    accelerator = site.argument("accelerator", 0 if class_name == "Fabric" else -1)  # -1: by keyword only
    if class_name not in TRAINERS or (accelerator is not None and is_right_accelerator(site, accelerator)):
        return
    names = " and ".join(card.title for card in site.cards)
    choice, choice_zh = "the default accelerator", "默认加速器"
    if accelerator is not None:
        choice = choice_zh = f"accelerator={site.text_of(accelerator)}"
    site.request_review(
        f"Lightning has no accelerator for the {names}, and {choice} would be CUDA or the CPU: pass a subclass of "
        "lightning's Accelerator for the device, and a strategy whose process_group_backend is the card's",
        zh=f"Lightning 没有 {names} 的加速器,{choice_zh} 会选用 CUDA 或 CPU:请传入为该设备派生的 Accelerator,"
        "并在 strategy 中设置其 process_group_backend",
        risk="high",
    )


def is_right_accelerator(site: Site, accelerator: ast.expr) -> bool:
    """Return True for the card, another kind of device than CUDA, or an expression that mentions the card."""
    devices = [card.device for card in site.cards]
    if isinstance(accelerator, ast.Constant):
        return accelerator.value in (*OTHER_ACCELERATORS, *devices)
    text = site.text_of(site.values.assigned_value(accelerator)).lower()
    return all(device in text for device in devices)
