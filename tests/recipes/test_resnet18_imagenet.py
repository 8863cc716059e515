"""ResNet-18 v1 with the recipe of ResNet-50."""

from __future__ import annotations

from recipes.checking import check_derived, check_settings


def test_nothing_but_these_parts_differs_from_its_parent() -> None:
    check_derived("resnet18_imagenet", "resnet50_imagenet", {"model", "expects"})


def test_its_own_settings() -> None:
    check_settings("resnet18_imagenet", {"model": "resnet18_v1"})
