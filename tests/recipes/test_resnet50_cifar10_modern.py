"""ResNet-50 on CIFAR-10 at 32x32: the book's recipe with another stem and stronger regularisation."""

from __future__ import annotations

from recipes.checking import check_derived, check_settings


def test_nothing_but_these_parts_differs_from_its_parent() -> None:
    check_derived(
        "resnet50_cifar10_modern",
        "resnet50_cifar10",
        {"data", "model", "schedule", "optimizer", "expects", "loss", "checkpoint", "epochs"},
    )


def test_its_own_settings() -> None:
    check_settings(
        "resnet50_cifar10_modern", {"data.size": 32, "data.cutout": 16, "loss.label_smoothing": 0.1, "epochs": 80}
    )
