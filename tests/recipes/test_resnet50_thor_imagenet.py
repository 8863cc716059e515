"""ResNet-50 with THOR as MindSpore trains it."""

from __future__ import annotations

from recipes.checking import check_fp16_scale, check_settings


def test_it_has_the_settings_of_its_reference() -> None:
    check_settings(
        "resnet50_thor_imagenet",
        {
            "data.global_batch": 256,
            "optimizer.lr": 0.045,
            "optimizer.momentum": 0.9,
            "optimizer.weight_decay": 5e-4,
            "optimizer.damping_init": 0.03,
            "optimizer.damping_decay": 0.87,
            "optimizer.frequency": 834,
            "schedule.end_epoch": 70,
            "schedule.power": 6,
            "schedule.halve_at": (39, 40),
            "loss.label_smoothing": 0.1,
            "epochs": 42,
            "log.format": "mindspore",
        },
    )


def test_only_fp16_has_a_loss_scale_and_it_is_the_references() -> None:
    check_fp16_scale("resnet50_thor_imagenet", 128.0)
