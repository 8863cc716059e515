"""Any classifier on ImageNet as networks are trained today."""

from __future__ import annotations

from recipes.checking import check_settings
from viaduct.recipes import AdamW


def test_it_has_these_settings() -> None:
    check_settings(
        "imagenet_modern",
        {
            "data.global_batch": 1024,
            "data.preprocess": "source",
            "data.auto_augment": "randaugment-2-9",
            "optimizer": AdamW(lr=1e-3, weight_decay=0.05, decay="weights"),
            "mixup": 0.8,
            "cutmix": 1.0,
            "ema.decay": 0.9999,
            "epochs": 300,
            "expects": None,
        },
    )
