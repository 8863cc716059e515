"""Fashion-MNIST after CIFAR-10: one epoch at a low rate."""

from __future__ import annotations

from recipes.checking import check_derived, check_settings


def test_nothing_but_these_parts_differs_from_its_parent() -> None:
    check_derived(
        "finetune_fashion_mnist",
        "resnet50_cifar10",
        {"optimizer", "data", "expects", "checkpoint", "epochs", "schedule"},
    )


def test_its_own_settings() -> None:
    check_settings("finetune_fashion_mnist", {"epochs": 1, "optimizer.lr": 0.02})
