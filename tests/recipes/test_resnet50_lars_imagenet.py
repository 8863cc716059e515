"""ResNet-50 v1 on ImageNet-1k with LARS as tf.contrib has it."""

from __future__ import annotations

from recipes.checking import check_settings


def test_it_has_the_settings_of_its_reference() -> None:
    check_settings(
        "resnet50_lars_imagenet",
        {
            "model": "resnet50_v1",
            "optimizer.momentum": 0.9,
            "optimizer.weight_decay": 1e-4,
            "optimizer.form": "contrib",
            "data.preprocess": "official",
            "epochs": 90,
        },
    )
