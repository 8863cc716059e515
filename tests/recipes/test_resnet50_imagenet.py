"""TensorFlow's official models (r1): ResNet-50 v1 on ImageNet-1k."""

from __future__ import annotations

from recipes.checking import check_fp16_scale, check_settings
from viaduct.recipes import Sgd


def test_it_has_the_settings_of_its_reference() -> None:
    check_settings(
        "resnet50_imagenet",
        {
            "model": "resnet50_v1",
            "data.preprocess": "official",
            "data.classes": 1001,
            "data.label_shift": 0,
            "data.global_batch": 256,
            "optimizer": Sgd(lr=0.128, momentum=0.9, weight_decay=1e-4, decay="not_norm"),
            "loss.label_smoothing": 0.0,
            "epochs": 90,
            "ema": None,
        },
    )


def test_only_fp16_has_a_loss_scale_and_it_is_the_references() -> None:
    check_fp16_scale("resnet50_imagenet", 512.0)
