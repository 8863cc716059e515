"""ResNeXt-50 on CIFAR-10: the ImageNet recipe, shortened."""

from __future__ import annotations

from recipes.checking import check_derived, check_fp16_scale, check_settings


def test_nothing_but_these_parts_differs_from_its_parent() -> None:
    check_derived(
        "resnext50_cifar10", "resnext50_imagenet", {"log", "data", "expects", "checkpoint", "epochs", "schedule"}
    )


def test_its_own_settings() -> None:
    check_settings("resnext50_cifar10", {"epochs": 30, "data.global_batch": 128, "schedule.warmup_epochs": 1})


def test_only_fp16_has_a_loss_scale_and_it_is_the_references() -> None:
    check_fp16_scale("resnext50_cifar10", 1024.0)
