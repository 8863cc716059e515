"""The small recipe of `make demo`."""

from __future__ import annotations

from recipes.checking import check_settings


def test_it_has_these_settings() -> None:
    check_settings(
        "shapes_taster",
        {"model": "resnet20_quick", "data.size": 32, "data.train_images": 6400, "epochs": 6, "expects.percent": 97.0},
    )
