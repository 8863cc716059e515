"""AmoebaNet-D as TensorFlow's TPU models and Ascend train it."""

from __future__ import annotations

from recipes.checking import check_settings
from viaduct.recipes import Sgd, load
from viaduct.training.precision import LossScale


def test_it_has_the_settings_of_its_reference() -> None:
    check_settings(
        "amoebanet_d_imagenet",
        {
            "model": "amoebanet_d",
            "data.preprocess": "amoebanet",
            "data.size": 224,
            "data.global_batch": 64,
            "network.cells": 6,
            "network.dropout_keep": 0.5,
            "network.drop_path_keep": 1.0,
            "optimizer": Sgd(lr=2.56, momentum=0.0, weight_decay=4e-5, decay="weights"),
            "schedule.warmup_epochs": 0.35,
            "schedule.decay": 0.88,
            "loss.label_smoothing": 0.1,
            "loss.smooth_evaluation": True,
            "aux_weight": 0.4,
            "ema.decay": 0.9999,
            "ema.num_updates": True,
            "clip_norm": 0.0,
            "epochs": 35,
            "checkpoint.every_steps": 1251,
            "log.format": "tf",
            "expects.percent": 75.6,
        },
    )


def test_amoebanets_scale_starts_high_and_is_halved_after_two_overflows() -> None:
    scale = LossScale(load("amoebanet_d_imagenet").recipe.precision, "fp16")
    assert (scale.value, scale.is_dynamic) == (2.0**32, True)
    scale.update(finite=False)
    assert scale.value == 2.0**32
    scale.update(finite=False)
    assert scale.value == 2.0**31
    for _ in range(1000):
        scale.update(finite=True)
    assert scale.value == 2.0**32
