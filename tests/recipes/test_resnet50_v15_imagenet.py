"""ResNet-50 v1.5 as NVIDIA and Cambricon train it."""

from __future__ import annotations

from recipes.checking import check_fp16_scale, check_settings
from viaduct.recipes import Sgd


def test_it_has_the_settings_of_its_reference() -> None:
    check_settings(
        "resnet50_v15_imagenet",
        {
            "model": "resnet50_v15",
            "data.preprocess": "v15",
            "data.classes": 1001,
            "data.label_shift": -1,
            "data.global_batch": 128,
            "optimizer": Sgd(lr=0.128, momentum=0.875, weight_decay=3.0517578125e-05, decay="not_norm"),
            "schedule.warmup_epochs": 8,
            "loss.label_smoothing": 0.1,
            "loss.smooth_evaluation": False,
            "mixup": 0.0,
            "epochs": 90,
            "checkpoint.every_steps": 1000,
            "checkpoint.keep": 5,
            "log.format": "dll",
        },
    )


def test_only_fp16_has_a_loss_scale_and_it_is_the_references() -> None:
    check_fp16_scale("resnet50_v15_imagenet", 256.0)
