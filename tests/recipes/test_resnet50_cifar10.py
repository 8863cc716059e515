"""ResNet-50 on CIFAR-10 enlarged to 224x224, as the book has it."""

from __future__ import annotations

from recipes.checking import check_settings
from viaduct.recipes import Sgd


def test_it_has_these_settings() -> None:
    check_settings(
        "resnet50_cifar10",
        {
            "model": "resnet50_book",
            "data.size": 224,
            "data.global_batch": 256,
            "epochs": 90,
            "checkpoint.every_steps": 32,
            "checkpoint.keep": 10,
            "schedule.warmup_epochs": 5,
            "optimizer": Sgd(lr=0.1, momentum=0.9, weight_decay=1e-4, decay="weights"),
            "expects.percent": 91.4,
        },
    )
