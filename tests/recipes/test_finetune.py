"""Any classifier, started from trained weights."""

from __future__ import annotations

from recipes.checking import check_settings
from viaduct.recipes import AdamW


def test_it_has_these_settings() -> None:
    check_settings(
        "finetune",
        {
            "data.preprocess": "source",
            "optimizer": AdamW(lr=1e-4, weight_decay=0.05, decay="weights"),
            "loss.label_smoothing": 0.1,
            "epochs": 20,
            "clip_norm": 1.0,
            "ema": None,
            "mixup": 0.0,
        },
    )
