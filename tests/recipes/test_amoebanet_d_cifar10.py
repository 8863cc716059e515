"""AmoebaNet-D on CIFAR-10: the ImageNet recipe with a lower rate and a shorter average."""

from __future__ import annotations

from recipes.checking import check_derived, check_settings


def test_nothing_but_these_parts_differs_from_its_parent() -> None:
    check_derived(
        "amoebanet_d_cifar10", "amoebanet_d_imagenet", {"optimizer", "data", "ema", "expects", "checkpoint", "schedule"}
    )


def test_its_own_settings() -> None:
    check_settings("amoebanet_d_cifar10", {"optimizer.lr": 1.0, "ema.decay": 0.999, "data.global_batch": 128})
