"""ResNeXt-50 as Ascend's model zoo trains it."""

from __future__ import annotations

from recipes.checking import check_fp16_scale, check_settings
from viaduct.recipes import Sgd


def test_it_has_the_settings_of_its_reference() -> None:
    check_settings(
        "resnext50_imagenet",
        {
            "model": "resnext50",
            "data.preprocess": "resnext",
            "data.label_shift": 0,
            "data.global_batch": 256,
            "optimizer": Sgd(lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4, decay="not_norm"),
            "schedule.warmup_epochs": 5,
            "schedule.end": 1e-6,
            "loss.label_smoothing": 0.1,
            "loss.smooth_evaluation": True,
            "epochs": 120,
            "checkpoint.every_steps": 50_000,
            "checkpoint.keep": 5,
            "log.every_steps": 1000,
            "log.format": "resnext",
            "expects.percent": 78.2,
        },
    )


def test_only_fp16_has_a_loss_scale_and_it_is_the_references() -> None:
    check_fp16_scale("resnext50_imagenet", 1024.0)
