"""ResNet-56 on CIFAR-10 as TensorFlow's official models (r1) train it."""

from __future__ import annotations

from recipes.checking import check_settings
from viaduct.recipes import Sgd


def test_it_has_these_settings() -> None:
    check_settings(
        "resnet56_cifar10",
        {
            "model": "resnet56_cifar",
            "data.global_batch": 128,
            "data.normalise": "per_image",
            "schedule.boundaries": (91, 136, 182),
            "schedule.factors": (1.0, 0.1, 0.01, 0.001),
            "epochs": 182,
            "optimizer": Sgd(lr=0.1, momentum=0.9, weight_decay=2e-4, decay="all"),
        },
    )
