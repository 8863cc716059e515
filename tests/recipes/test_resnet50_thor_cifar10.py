"""ResNet-50 on CIFAR-10 with THOR."""

from __future__ import annotations

from recipes.checking import check_derived, check_settings
from viaduct.recipes import load


def test_nothing_but_these_parts_differs_from_its_parent() -> None:
    check_derived(
        "resnet50_thor_cifar10", "resnet50_cifar10", {"optimizer", "expects", "checkpoint", "epochs", "schedule"}
    )


def test_its_own_settings() -> None:
    check_settings("resnet50_thor_cifar10", {"epochs": 45, "optimizer.frequency": 50})


def test_thor_and_sgd_are_compared_on_the_same_network_and_images() -> None:
    thor, sgd = load("resnet50_thor_cifar10").recipe, load("resnet50_cifar10").recipe
    assert (thor.model, thor.data, thor.loss, thor.seed) == (sgd.model, sgd.data, sgd.loss, sgd.seed)
    assert thor.epochs == sgd.epochs / 2
